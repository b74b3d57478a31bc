"""Randomized positions (Ruoss et al. 2023, arXiv:2305.16843): sorted samples from a longer range.

The positions [T] of a sequence are T distinct elements of {0 .. N-1}, drawn uniformly and sorted;
the whole batch shares them, and N is `max_length`. As in the authors' code
(google-deepmind/randomized_positional_encodings), position embeddings use one sample per forward
pass and rotary encodings one per layer. Encodings that depend on distance use sorted offsets
instead: 0 for the token itself and T-1 elements of {1 .. N-1}; the r-th previous token gets the
r-th offset. If they also use the query's position i, as FIRE does, it becomes the i-th offset.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from posenc.encodings.base import Encoding, Factors, Geometry, layer_encodings
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.wrapper import EncodingFactory, Wrapper

POSITION_HOOKS = ("embed", "rotate", "bias", "content_bias", "value_bias")
MAX_LENGTH_LIMIT = 2**24
EvalPositions = Literal["random", "spaced", "arange"]


class Randomized(Wrapper):
    """The inner encoding at random positions below `max_length`.

    `eval_positions` selects the positions in evaluation: `random`, as in training and in the paper
    (a fixed sample for each length and layer), `spaced` evenly over the range, or `arange`, 0 to
    T-1.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: EncodingFactory,
        max_length: int = 2048,
        eval_positions: EvalPositions = "random",
    ) -> None:
        super().__init__(geometry, inner)
        self.sampler = PositionSampler(max_length, eval_positions)
        _validate(self.inner, max_length, geometry.train_length)
        self.limitations = {
            **self.limitations,
            "prefix_consistent": "the positions of a sequence are sampled jointly",
        }
        if eval_positions != "arange":
            self.limitations["any_length"] = f"positions are drawn from {max_length} values"

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        length = len(require_1d_positions(pos, "randomized"))
        self.sampler.draw_offsets(length, self.training, pos.device)
        return self.active.embed(x, self.sampler.positions(pos, self.training, 0))

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return self.active.rotate(x, q, k, self.sampler.positions(pos, self.training, self.layer))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.active.bias(head, self.sampler.offset(distance), self.sampler.offset(pos_q))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        distance, pos_q = self.sampler.offset(distance), self.sampler.offset(pos_q)
        return self.active.content_bias(x, q, k, distance, pos_q)

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        return self.active.bias_factors(x, q, k, pos) if self.sampler.offsets is None else None

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        return self.active.value_bias(weights, self.sampler.offset(distance))

    def max_length(self) -> int | None:
        if self.sampler.eval_positions == "arange":
            return self.inner.max_length()
        return self.sampler.max_length

    def overrides(self, hook: str) -> bool:
        return hook == "embed" or self.active.overrides(hook)


class PositionSampler:
    """Draws the positions of a forward pass, and stores the offsets that all layers share."""

    def __init__(self, max_length: int, eval_positions: EvalPositions) -> None:
        self.max_length, self.eval_positions = max_length, eval_positions
        self.offsets: Tensor | None = None

    def draw_offsets(self, length: int, training: bool, device: torch.device) -> None:
        """Draw the offsets that replace distances throughout this forward pass."""
        unchanged = not training and self.eval_positions == "arange"
        self.offsets = None if unchanged else self.draw(length, 1, training, 0).to(device)

    def positions(self, pos: Tensor, training: bool, layer: int) -> Tensor:
        """Return the positions [T] that replace `pos` in a layer."""
        length = len(require_1d_positions(pos, "randomized"))
        if not training and self.eval_positions == "arange":
            return pos
        return self.draw(length, 0, training, layer).to(pos.device)

    def offset(self, distance: Tensor) -> Tensor:
        """Replace each distance of r tokens with the r-th offset of this forward pass."""
        if self.offsets is None:
            return distance
        return self.offsets[distance.long().clamp(0, len(self.offsets) - 1)].to(distance.dtype)

    @torch.compiler.disable  # compiled code would draw different numbers
    def draw(self, length: int, leading_zeros: int, training: bool, layer: int) -> Tensor:
        """Return `length` sorted positions, of which the first `leading_zeros` (0 or 1) are zero.

        Raises ValueError if `length` exceeds `max_length`.
        """
        if length > self.max_length:
            raise ValueError(f"{length} positions exceed encoding.max_length={self.max_length}")
        if not training and self.eval_positions == "spaced":
            return torch.arange(length) * self.max_length // length
        generator = None if training else torch.Generator().manual_seed(length * 1_000 + layer)
        shuffled = torch.randperm(self.max_length - leading_zeros, generator=generator)
        drawn = shuffled[: length - leading_zeros].sort().values + leading_zeros
        return torch.cat([torch.zeros(leading_zeros, dtype=torch.long), drawn])


def _validate(inner: Encoding, max_length: int, train_length: int) -> None:
    """Raise ValueError if `max_length` is out of range or `inner` cannot be randomized."""
    name, limit = type(inner).__name__, inner.max_length()
    if not train_length <= max_length <= MAX_LENGTH_LIMIT:
        raise ValueError(
            f"max_length={max_length} must be between train_length={train_length} and"
            f" {MAX_LENGTH_LIMIT}"
        )
    if limit is not None and limit < max_length:
        raise ValueError(
            f"max_length={max_length} exceeds the {limit} positions of inner={name};"
            f" choose at most {limit}, or an inner encoding with more positions"
        )
    layers = layer_encodings(inner)
    if any(layer.overrides("rotation_index") for layer in layers):
        raise ValueError(
            f"inner={name} selects rotations by the positions in the data, not by random ones;"
            f" choose another, such as rope"
        )
    if inner.overrides("positions") or isinstance(inner, Randomized):
        raise ValueError(f"inner={name} defines its own positions; choose another, such as rope")
    if not reads_positions(inner, min(2, max_length)):
        hooks = [hook for hook in POSITION_HOOKS if any(layer.overrides(hook) for layer in layers)]
        detail = f" (its {' and '.join(hooks)} {'ignore' if hooks[1:] else 'ignores'} them)"
        raise ValueError(
            f"inner={name} does not use positions{detail if hooks else ''}, so randomizing them has"
            f" no effect; choose another, such as rope"
        )


def reads_positions(encoding: Encoding, length: int) -> bool:
    """Return whether any hook of the encoding, in any layer, reads the positions that it receives.

    Calls the hooks on `length` tokens and detects whether they use the position and distance
    tensors. It is not enough to check which hooks are overridden: FoX, CABLE and CoPE override
    `content_bias`, but ignore positions.
    """
    geometry = encoding.geometry
    x = torch.zeros(1, length, geometry.width)
    queries = torch.zeros(1, geometry.heads, length, geometry.head_dim)
    head = torch.arange(geometry.heads)[:, None, None]
    pos = torch.arange(length)
    pos_q = pos[:, None].float()
    distance = pos_q - pos
    weights = torch.ones(1, geometry.heads, length, length)
    with torch.no_grad(), _ReadDetector(pos, pos_q, distance) as detector:
        encoding.embed(x, pos)
        for layer in layer_encodings(encoding):
            q, k = layer.rotate(x, queries, queries, pos)
            layer.bias(head, distance, pos_q)
            layer.content_bias(x, q, k, distance, pos_q)
            layer.value_bias(weights, distance)
            if detector.read:
                break
    return detector.read


class _ReadDetector(TorchFunctionMode):
    """Sets `read` to True when a PyTorch function reads the values of one of the given tensors."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        self.tensors, self.read = tensors, False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        metadata_only = getattr(func, "__name__", "") in ("__get__", "__len__", "size", "dim")
        if not metadata_only and self._contains((*args, *(kwargs or {}).values())):
            self.read = True
        return func(*args, **(kwargs or {}))

    def _contains(self, arguments: tuple[Any, ...] | list[Any]) -> bool:
        return any(
            any(argument is tensor for tensor in self.tensors)
            or (isinstance(argument, tuple | list) and self._contains(argument))
            for argument in arguments
        )
