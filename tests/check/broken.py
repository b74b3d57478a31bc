"""Encodings with one defect each, and a few correct ones; built by name in test_check.py."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Factors, Geometry


class Correct(Encoding):
    """A correct encoding with a learnable slope and a numeric parameter."""

    def __init__(self, geometry: Geometry, *, rate: float = 0.5) -> None:
        super().__init__(geometry)
        self.rate = rate
        self.slope = nn.Parameter(torch.zeros(geometry.heads))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -(self.rate + self.slope.to(distance.dtype)[head]) * distance


class Limited(Encoding):
    """A correct encoding that declares its limitation."""

    limitations: Mapping[str, str] = {"shift_invariant": "the bias depends on the query's position"}

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


class Unbuildable(Encoding):
    def __init__(self, geometry: Geometry) -> None:
        raise AttributeError("nothing here")


class RepeatsModelHyperparameters(Encoding):
    def __init__(self, geometry: Geometry, *, heads: int = 4) -> None:
        super().__init__(geometry)
        self.slopes = [1 / (heads + head) for head in range(geometry.heads)]

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -torch.tensor(self.slopes, dtype=distance.dtype)[head] * distance


class UnknownLimitation(Correct):
    limitations: Mapping[str, str] = {"shfit": "a typo"}


class LimitationWithoutReason(Encoding):
    limitations: Mapping[str, str] = {"shift_invariant": ""}

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


class ReturnsFloat64(Encoding):
    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return (q.double(), k.double()) if q.dtype == torch.bfloat16 else (q, k)


class MisspelledHook(Encoding):
    def biass(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance


class NotCausal(Encoding):
    """Every query sees all keys of its block."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        return k.to(distance.dtype).mean(dim=(-2, -1), keepdim=True) * distance


class NeedlessLimitation(Correct):
    """Declares a limitation that it does not have."""

    limitations: Mapping[str, str] = {"causal": "declared unnecessarily"}


class DependsOnLength(Encoding):
    """Depends on the length of the sequence."""

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return q * len(pos) ** 0.5, k


class DependsOnQueryPosition(Encoding):
    """A bias that should depend on distance only."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


class NotFinitePastTwiceTheLength(Encoding):
    """NaN past twice the training length."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -(2 * self.geometry.train_length - distance.clamp(min=0)).sqrt()


class NotFiniteAfterTheQuery(Encoding):
    """NaN for keys that no query can attend to."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -(1 + distance).log()


class NotFiniteInTraining(Encoding):
    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        grown = (pos[:, None] * 5.0).double().exp() if self.training else pos[:, None]
        return x + grown.to(x.dtype) * torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)


class FiniteTable(Encoding):
    """A correct encoding with a table as long as the training length."""

    limitations: Mapping[str, str] = {"any_length": "the table ends"}
    error: ClassVar[str] = "there are {limit} positions"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.table = nn.Parameter(torch.randn(geometry.train_length, geometry.width))

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        if len(pos) > self.max_length():
            raise ValueError(self.error.format(limit=self.max_length()))
        return x + self.table[pos].to(x.dtype)

    def max_length(self) -> int:
        return len(self.table)


class LimitNotInMessage(FiniteTable):
    error = "too long"


class LimitNotDeclared(FiniteTable):
    limitations: Mapping[str, str] = {}


class LimitNotEnforced(FiniteTable):
    """Repeats its table past the end instead of raising an error."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table[pos % self.max_length()].to(x.dtype)


class LimitInParameterNames(FiniteTable):
    """A table with a buffer whose name depends on the training length."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer(f"length_{geometry.train_length}", torch.ones(1))


class LengthInState(Correct):
    """A buffer whose size needlessly depends on the training length."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer("steps", torch.arange(geometry.train_length))


class IgnoresItsParameter(Encoding):
    def __init__(self, geometry: Geometry, *, rate: float = 0.5) -> None:
        super().__init__(geometry)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -0.5 * distance


class CachesTheFirstInstance(Encoding):
    """A cache whose key lacks the parameter, like the missing theta in Equinox's RoPE cache."""

    cache: ClassVar[dict[int, Tensor]] = {}

    def __init__(self, geometry: Geometry, *, base: float = 100.0) -> None:
        super().__init__(geometry)
        self.base = base

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        heads = self.geometry.heads
        rates = self.base ** -torch.linspace(0, 1, heads, dtype=torch.float64)
        return -self.cache.setdefault(heads, rates).to(distance.dtype)[head] * distance


class SharesItsParameter(Encoding):
    """A parameter stored on the class, so that the last instance's value applies to all."""

    rate: ClassVar[float]

    def __init__(self, geometry: Geometry, *, rate: float = 0.5) -> None:
        super().__init__(geometry)
        type(self).rate = rate

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -self.rate * distance


class UnusedParameter(Correct):
    """A learnable parameter that is not used."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.unused = nn.Parameter(torch.ones(3))


class HalfDetached(Encoding):
    """The square of its slope, with one factor detached from the gradient."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.slope = nn.Parameter(torch.ones(geometry.heads))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        slope = self.slope.to(distance.dtype)
        return -(slope * slope.detach())[head] * distance


class WrongFactors(Encoding):
    """Factors of twice the bias."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -0.25 * distance

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors:
        steps = 0.5 * pos.double()[None, None, :, None]
        return None, steps


class AssumesFirstRows(Encoding):
    """Treats its queries as the first tokens, although they are the last ones."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        level = x.mean(dim=-1)[:, None, : q.shape[-2], None].to(distance.dtype)
        return level.expand(-1, q.shape[1], -1, -1) * distance


class CorrectRotation(Encoding):
    """A correct rotation; its subclasses below compute the angles in too low a precision."""

    def frequencies(self) -> Tensor:
        bands = torch.arange(self.geometry.head_dim // 2, dtype=torch.float64)
        return 10_000 ** (-2 * bands / self.geometry.head_dim)

    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        return pos.double()[:, None] * self.frequencies()

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        angles = self.angles(q, pos)
        dtype = torch.promote_types(q.dtype, torch.float32)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

        def rotated(t: Tensor) -> Tensor:
            a, b = t.chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(t.dtype)

        return rotated(q), rotated(k)


class AnglesInFloat32(CorrectRotation):
    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        return pos.to(dtype)[:, None] * self.frequencies().to(dtype)


class AnglesLikeQueries(CorrectRotation):
    """Angles in float64 unless the queries have half precision."""

    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float64
        return pos.to(dtype)[:, None] * self.frequencies().to(dtype)


class AnglesUnderAutocast(CorrectRotation):
    """Angles from a matrix product, which autocast rounds."""

    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        return pos.to(dtype)[:, None] @ self.frequencies().to(dtype)[None]


class SlopesInABuffer(Encoding):
    """Slopes that `.bfloat16()` rounds with the rest of the module."""

    slopes: Tensor

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer("slopes", torch.linspace(0.1, 1, geometry.heads), persistent=False)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -self.slopes.to(distance.dtype)[head] * distance


class SumsInFloat32(Encoding):
    """A cumulative sum over 16,000 tokens with small differences."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        sums = (x.to(distance.dtype)[..., 0].square() + 1).cumsum(-1)
        between = sums[:, None, None, :] - sums[:, None, -q.shape[-2] :, None]
        return 0.1 * between.expand(-1, q.shape[1], -1, -1)


class ValueBiasInHalfPrecision(Encoding):
    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor:
        half = weights if weights.dtype == torch.float64 else weights.bfloat16()
        mean = (half * distance.clamp(min=0)).sum(dim=-1, keepdim=True) / 100
        return mean.to(weights.dtype).expand(*weights.shape[:-1], self.geometry.head_dim)


class RandomInEvaluation(Encoding):
    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance * (1 + torch.rand(()).to(distance.dtype))


class WithoutHeadIndex(Encoding):
    """Multiplies slopes by distances without `[head]`: sizes in the error depend on the length."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return torch.ones(4, dtype=distance.dtype) * distance


class Raising(Encoding):
    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Any:
        raise RuntimeError("no bias\ntoday")
