"""Relative positions as keys and values (Shaw et al. 2018, 1803.02155, eq. 3-5).

    score(i, j) = q_i . (k_j + a[r]) / sqrt(d),   z_i = sum_j weight(i, j) (v_j + b[r]),
    r = min(i - j, clip)

The paper's tables a, b hold 2 clip + 1 rows, for both directions; a decoder sees the rows of
distances 0 .. clip alone, and those are here. Tables differ by layer; the paper's base model has
them by head too (`per_head`), its big one and tensor2tensor share them between heads, and they
start as tensor2tensor's do: uniform, within sqrt(6 / (2 clip + 1 + d)).
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.relative import pick


class Shaw(PerLayer):
    """A trained key for each distance up to `clip`, and a trained value (where `values`)."""

    def __init__(
        self, geometry: Geometry, *, clip: int = 16, per_head: bool = False, values: bool = True
    ) -> None:
        super().__init__(geometry)
        if clip < 1:
            raise ValueError(f"clip={clip} must be 1 or more; without positions: encoding=nope")
        self.clip = clip
        heads = [geometry.heads] if per_head else []
        shape = (geometry.layers, *heads, clip + 1, geometry.head_width)
        limit = (6 / (2 * clip + 1 + geometry.head_width)) ** 0.5
        self.keys = nn.Parameter(torch.empty(shape).uniform_(-limit, limit))
        self.values = nn.Parameter(torch.empty(shape).uniform_(-limit, limit)) if values else None

    def row(self, distance: Tensor) -> Tensor:
        """The row of each distance; between coordinates, of the nearest whole number."""
        return distance.clamp(0, self.clip).round().long()

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        keys = self.keys[self.layer].to(distance.dtype)  # [clip + 1, d] or [H, clip + 1, d]
        scores = q.to(distance.dtype) @ keys.mT * q.shape[-1] ** -0.5
        return pick(scores, self.row(distance))

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        row = self.row(distance).expand_as(weights)
        by_row = weights.new_zeros(*weights.shape[:-1], self.clip + 1, dtype=torch.float64)
        by_row = by_row.scatter_add(-1, row, weights.double())  # thousands of tokens share a row
        return by_row.to(weights.dtype) @ self.values[self.layer].to(weights.dtype)
