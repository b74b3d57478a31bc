"""Randomized positions (Ruoss et al. 2023, 2305.16843): sorted draws from a longer range.

The T positions of a sequence are T distinct ones of {0 .. N-1}, drawn uniformly and sorted, the
same for a whole batch. As in the authors' code (google-deepmind/randomized_positional_encodings):
what adds to the stream gets one draw a forward pass, a rotation one draw a layer. What goes by
distance gets sorted offsets instead, 0 for the token itself and T-1 others of {1 .. N-1}, the r-th
neighbour at the r-th offset.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Geometry, along_sequence
from posenc.encodings.wrapper import Inner, Wrapper


class Randomized(Wrapper):
    """The inner encoding at positions from a range of `longest`.

    At `evaluation` positions are drawn too, as the authors do (one draw for each length, the same
    whenever it is measured again); or stand at even spaces over the range; or are plain 0 .. T-1.
    """

    exceptions: Mapping[str, str] = {"prefix": "the positions of a sequence are drawn together"}

    def __init__(
        self,
        geometry: Geometry,
        *,
        inner: Inner,
        longest: int = 2048,
        evaluation: Literal["random", "spaced", "arange"] = "random",
    ) -> None:
        super().__init__(geometry, inner)
        limit = self.inner.max_length()
        if longest < geometry.train_length or (limit is not None and limit < longest):
            raise ValueError(
                f"longest={longest} must lie from train_length={geometry.train_length}"
                f" to the inner encoding's limit of {limit or 'any'} positions"
            )
        self.longest, self.evaluation = longest, evaluation
        self.offsets: Tensor | None = None
        if evaluation != "arange":
            range_end = f"there are {longest} positions to choose from"
            self.exceptions = {**self.exceptions, "extrapolates": range_end}

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        length = len(along_sequence(pos, "randomized"))
        if self.training or self.evaluation != "arange":
            self.offsets = self._chosen(length, 1).to(pos.device)
            pos = self._chosen(length, 0).to(pos.device)
        else:
            self.offsets = None
        return self.here.embed(x, pos)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        if self.training or self.evaluation != "arange":
            pos = self._chosen(len(along_sequence(pos, "randomized")), 0).to(pos.device)
        return self.here.rotate(x, q, k, pos)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor | None:
        return self.here.bias(head, self._moved(distance), self._moved(pos_q))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor | None:
        return self.here.content_bias(x, q, k, self._moved(distance), self._moved(pos_q))

    def bias_factors(self, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor] | None:
        return self.here.bias_factors(x, pos) if self.offsets is None else None

    def mix(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        return self.here.mix(weights, self._moved(distance))

    def max_length(self) -> int | None:
        return self.inner.max_length() if self.evaluation == "arange" else self.longest

    def acts(self, hook: str) -> bool:
        return self.here.acts(hook)

    def _moved(self, distance: Tensor) -> Tensor:
        """What lies r tokens back moved to the r-th offset of this forward pass."""
        if self.offsets is None:
            return distance
        return self.offsets[distance.long().clamp(0, len(self.offsets) - 1)].to(distance.dtype)

    def _chosen(self, length: int, fixed: int) -> Tensor:
        """`length` sorted positions, the first `fixed` of them (0 or 1) being 0."""
        if length > self.longest:
            raise ValueError(f"{length} positions, but there are only longest={self.longest}")
        if not self.training and self.evaluation == "spaced":
            return torch.arange(length) * self.longest // length
        generator = None
        if not self.training:
            generator = torch.Generator().manual_seed(length * 1_000 + self.layer)
        free = torch.randperm(self.longest - fixed, generator=generator)[: length - fixed]
        return torch.cat([torch.zeros(fixed, dtype=torch.long), free.sort().values + fixed])
