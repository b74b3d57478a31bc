"""Encodings, each wrong in one way, and two that are right; built by `test_check.py` by name."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Factors, Geometry


class Sound(Encoding):
    """Nothing wrong: a trained slope, a numeric knob."""

    def __init__(self, geometry: Geometry, *, rate: float = 0.5) -> None:
        super().__init__(geometry)
        self.rate = rate
        self.slope = nn.Parameter(torch.zeros(geometry.heads))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -(self.rate + self.slope.to(distance.dtype)[head]) * distance


class Excepted(Encoding):
    """Nothing wrong: what does not hold is declared."""

    limitations: Mapping[str, str] = {"shift": "the query's own position counts"}

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


class Unbuildable(Encoding):
    def __init__(self, geometry: Geometry) -> None:
        raise AttributeError("nothing here")


class TellsTheHost(Encoding):
    def __init__(self, geometry: Geometry, *, heads: int = 4) -> None:
        super().__init__(geometry)
        self.slopes = [1 / (heads + head) for head in range(geometry.heads)]

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -torch.tensor(self.slopes, dtype=distance.dtype)[head] * distance


class Mistyped(Encoding):
    limitations: Mapping[str, str] = {"shfit": "a slip of the pen"}


class Unreasoned(Encoding):
    limitations: Mapping[str, str] = {"shift": ""}

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


class AlwaysWide(Encoding):
    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return (q.double(), k.double()) if q.dtype == torch.bfloat16 else (q, k)


class Leaking(Encoding):
    """Every row sees all keys of its block."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        return k.to(distance.dtype).mean(dim=(-2, -1), keepdim=True) * distance


class Excusing(Encoding):
    """Declares what in truth holds."""

    limitations: Mapping[str, str] = {"causal": "so it is said"}


class Counting(Encoding):
    """Knows how long the sequence is."""

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return q * len(pos) ** 0.5, k


class Absolute(Encoding):
    """Relative by its hook, but not in what it computes."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -distance / (1 + pos_q)


class Overflowing(Encoding):
    """Not a number past twice the training length."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -(2 * self.geometry.train_length - distance.clamp(min=0)).sqrt()


class FailsInTraining(Encoding):
    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        grown = (pos[:, None] * 5.0).double().exp() if self.training else pos[:, None]
        return x + grown.to(x.dtype) * torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)


class Limited(Encoding):
    """A table; `limit` is what it says of itself."""

    limitations: Mapping[str, str] = {"extrapolates": "a table ends"}
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


class LimitUnnamed(Limited):
    error = "too long"


class LimitUndeclared(Limited):
    limitations: Mapping[str, str] = {}


class LimitUnkept(Limited):
    """Goes on past its end, as if it were there."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table[pos % self.max_length()].to(x.dtype)


class LimitInItsNames(Limited):
    """A table whose very name depends on the training length."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer(f"length_{geometry.train_length}", torch.ones(1))


class LengthInItsState(Encoding):
    """A buffer as long as the training sequences, without any need."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer("steps", torch.arange(geometry.train_length))


class IgnoresItsKnob(Encoding):
    def __init__(self, geometry: Geometry, *, rate: float = 0.5) -> None:
        super().__init__(geometry)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -0.5 * distance


class RemembersTheFirst(Encoding):
    """A cache whose key lacks the knob, as that of Equinox lacks theta: the first one's stays."""

    cache: ClassVar[dict[int, Tensor]] = {}

    def __init__(self, geometry: Geometry, *, base: float = 100.0) -> None:
        super().__init__(geometry)
        self.base = base

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        heads = self.geometry.heads
        rates = self.base ** -torch.linspace(0, 1, heads, dtype=torch.float64)
        return -self.cache.setdefault(heads, rates).to(distance.dtype)[head] * distance


class SharesItsKnob(Encoding):
    """A knob kept on the class: the last one's counts for all."""

    rate: ClassVar[float]

    def __init__(self, geometry: Geometry, *, rate: float = 0.5) -> None:
        super().__init__(geometry)
        type(self).rate = rate

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -self.rate * distance


class Idle(Encoding):
    """A parameter that nothing reads."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.idle = nn.Parameter(torch.ones(3))


class HalfDetached(Encoding):
    """The square of its slope, of which one factor gets no gradient."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.slope = nn.Parameter(torch.ones(geometry.heads))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        slope = self.slope.to(distance.dtype)
        return -(slope * slope.detach())[head] * distance


class WrongFactors(Encoding):
    """Factors of twice its bias."""

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -0.25 * distance

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors]:
        steps = 0.5 * pos.double()[None, None, :, None]
        return [(-steps, None), (None, steps)]


class FirstRowsOnly(Encoding):
    """Takes its queries for the first tokens, where they are the last of the keys."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        level = x.mean(dim=-1)[:, None, : q.shape[-2], None].to(distance.dtype)
        return level.expand(-1, q.shape[1], -1, -1) * distance


class Turning(Encoding):
    """Rotation; how its angles are formed is left to the wrong ones below."""

    def frequencies(self) -> Tensor:
        bands = torch.arange(self.geometry.head_width // 2, dtype=torch.float64)
        return 10_000 ** (-2 * bands / self.geometry.head_width)

    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        return pos.double()[:, None] * self.frequencies()

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        angles = self.angles(q, pos)
        dtype = torch.promote_types(q.dtype, torch.float32)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

        def turned(t: Tensor) -> Tensor:
            a, b = t.chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(t.dtype)

        return turned(q), turned(k)


class AnglesInFloat32(Turning):
    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        return pos.to(dtype)[:, None] * self.frequencies().to(dtype)


class AnglesLikeQueries(Turning):
    """In float64 unless the queries are of half precision."""

    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float64
        return pos.to(dtype)[:, None] * self.frequencies().to(dtype)


class AnglesUnderAutocast(Turning):
    """A matrix product, which autocast rounds."""

    def angles(self, q: Tensor, pos: Tensor) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        return pos.to(dtype)[:, None] @ self.frequencies().to(dtype)[None]


class SlopesInABuffer(Encoding):
    """What `.bfloat16()` rounds with the rest of the module."""

    slopes: Tensor

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.register_buffer("slopes", torch.linspace(0.1, 1, geometry.heads), persistent=False)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -self.slopes.to(distance.dtype)[head] * distance


class SumsInFloat32(Encoding):
    """A running sum over 16,000 tokens, whose differences are then small."""

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        sums = (x.to(distance.dtype)[..., 0].square() + 1).cumsum(-1)
        between = sums[:, None, None, :] - sums[:, None, -q.shape[-2] :, None]
        return 0.1 * between.expand(-1, q.shape[1], -1, -1)


class MixesInHalfPrecision(Encoding):
    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor:
        half = weights if weights.dtype == torch.float64 else weights.bfloat16()
        mean = (half * distance.clamp(min=0)).sum(dim=-1, keepdim=True) / 100
        return mean.to(weights.dtype).expand(*weights.shape[:-1], self.geometry.head_width)


class Raising(Encoding):
    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Any:
        raise RuntimeError("no bias\ntoday")
