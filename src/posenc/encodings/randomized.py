"""Randomized positions (Ruoss et al. 2023, 2305.16843): sorted draws from a longer range.

The positions [T] of a sequence are T distinct ones of {0 .. N-1}, drawn uniformly and sorted, the
same for a whole batch. As in the authors' code (google-deepmind/randomized_positional_encodings):
what adds to the stream gets one draw a forward pass, a rotation one draw a layer. What goes by
distance gets sorted offsets instead, 0 for the token itself and T-1 others of {1 .. N-1}, the r-th
neighbour at the r-th offset.
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Factors, Geometry, along_sequence
from posenc.encodings.wrapper import Inner, Wrapper

LONGEST = 2**24
AtEvaluation = Literal["random", "spaced", "arange"]


class Randomized(Wrapper):
    """The inner encoding at positions from a range of `longest`.

    At `evaluation` positions are drawn too, as the authors do (one draw for each length, the same
    whenever it is measured again); or stand at even spaces over the range; or are plain 0 .. T-1.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: Inner,
        longest: int = 2048,
        evaluation: AtEvaluation = "random",
    ) -> None:
        super().__init__(geometry, inner)
        self.draws = Draws(longest, evaluation)
        refuse(self.inner, longest, geometry.train_length)
        self.limitations = {
            **self.limitations,
            "prefix": "positions of a sequence are drawn together",
        }
        if evaluation != "arange":
            self.limitations["extrapolates"] = f"there are {longest} positions to choose from"

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        length = len(along_sequence(pos, "randomized"))
        self.draws.start(length, self.training, pos.device)
        return self.here.embed(x, self.draws.positions(pos, self.training, 0))

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return self.here.rotate(x, q, k, self.draws.positions(pos, self.training, self.layer))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.here.bias(head, self.draws.moved(distance), self.draws.moved(pos_q))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        moved, query = self.draws.moved(distance), self.draws.moved(pos_q)
        return self.here.content_bias(x, q, k, moved, query)

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors] | None:
        return self.here.bias_factors(x, pos) if self.draws.offsets is None else None

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        return self.here.value_bias(weights, self.draws.moved(distance))

    def max_length(self) -> int | None:
        own = self.draws.evaluation != "arange"
        return self.draws.longest if own else self.inner.max_length()

    def overrides(self, hook: str) -> bool:
        return hook == "embed" or self.here.overrides(hook)


class Draws:
    """The positions of a forward pass, shared by the views of all layers."""

    def __init__(self, longest: int, evaluation: AtEvaluation) -> None:
        self.longest, self.evaluation = longest, evaluation
        self.offsets: Tensor | None = None

    def start(self, length: int, training: bool, device: torch.device) -> None:
        """A forward pass begins: the offsets of what goes by distance are drawn for all of it."""
        plain = not training and self.evaluation == "arange"
        self.offsets = None if plain else self.chosen(length, 1, training, 0).to(device)

    def positions(self, pos: Tensor, training: bool, layer: int) -> Tensor:
        """Positions [T] for those of a sequence, drawn anew."""
        length = len(along_sequence(pos, "randomized"))
        if not training and self.evaluation == "arange":
            return pos
        return self.chosen(length, 0, training, layer).to(pos.device)

    def moved(self, distance: Tensor) -> Tensor:
        """What lies r tokens back moved to the r-th offset of this forward pass."""
        if self.offsets is None:
            return distance
        return self.offsets[distance.long().clamp(0, len(self.offsets) - 1)].to(distance.dtype)

    def chosen(self, length: int, fixed: int, training: bool, layer: int) -> Tensor:
        """`length` sorted positions, the first `fixed` of them (0 or 1) being 0."""
        if length > self.longest:
            raise ValueError(f"{length} positions, but there are only longest={self.longest}")
        if not training and self.evaluation == "spaced":
            return torch.arange(length) * self.longest // length
        generator = None if training else torch.Generator().manual_seed(length * 1_000 + layer)
        free = torch.randperm(self.longest - fixed, generator=generator)[: length - fixed]
        return torch.cat([torch.zeros(fixed, dtype=torch.long), free.sort().values + fixed])


def refuse(inner: Encoding, longest: int, train_length: int) -> None:
    """ValueError for a range that is too short or too long, or an encoding it cannot serve."""
    name, limit = type(inner).__name__, inner.max_length()
    if not train_length <= longest <= LONGEST:
        raise ValueError(
            f"longest={longest} must lie from train_length={train_length} to {LONGEST}"
        )
    if limit is not None and limit < longest:
        raise ValueError(
            f"longest={longest} is past the {limit} positions of inner={name};"
            f" give longest={limit} or less, or an inner encoding that reaches further"
        )
    acting = ("embed", "rotate", "bias", "content_bias", "value_bias")
    if inner.overrides("positions") or isinstance(inner, Randomized):
        raise ValueError(f"inner={name} has positions of its own; give another, such as rope")
    if not any(inner.overrides(hook) for hook in acting):
        raise ValueError(f"inner={name} has no positions to draw; give another, such as rope")
