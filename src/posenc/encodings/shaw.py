"""Relative embeddings added to keys and values (Shaw et al. 2018, arXiv:1803.02155, eq. 3-5).

    score(i, j) = q_i . (k_j + a[r]) / sqrt(d),   z_i = sum_j weight(i, j) (v_j + b[r]),
    r = min(i - j, max_relative_position)

The paper's tables a and b have 2 max_relative_position + 1 rows, for both directions. A causal
model uses only the rows for distances 0 .. max_relative_position, so only these exist here. Every
layer has its own tables. The paper's base model also has separate tables per head (`per_head`); its
big model and tensor2tensor share them between heads. They are initialized as in tensor2tensor:
uniformly in +-sqrt(6 / (2 max_relative_position + 1 + d)).
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.relative_scores import gather_scores


class Shaw(PerLayer):
    """Learned embeddings of distances, added to keys and, with `values`, also to values."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        max_relative_position: int = 16,
        per_head: bool = False,
        values: bool = True,
    ) -> None:
        super().__init__(geometry)
        if max_relative_position < 1:
            raise ValueError(
                f"max_relative_position={max_relative_position} must be at least 1;"
                f" use encoding=nope for no positional encoding"
            )
        self.max_relative_position = max_relative_position
        heads = [geometry.heads] if per_head else []
        shape = (geometry.layers, *heads, max_relative_position + 1, geometry.head_dim)
        limit = (6 / (2 * max_relative_position + 1 + geometry.head_dim)) ** 0.5
        self.keys = nn.Parameter(torch.empty(shape).uniform_(-limit, limit))
        self.values = nn.Parameter(torch.empty(shape).uniform_(-limit, limit)) if values else None

    def row(self, distance: Tensor) -> Tensor:
        """Return the table row of each distance; distances between coordinates are rounded."""
        return distance.clamp(0, self.max_relative_position).round().long()

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        keys = self.keys[self.layer].to(distance.dtype)  # [rows, d] or [H, rows, d]
        scores = q.to(distance.dtype) @ keys.mT * q.shape[-1] ** -0.5
        return gather_scores(scores, self.row(distance))

    def value_bias(self, weights: Tensor, distance: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        row = self.row(distance).expand_as(weights)
        rows = self.max_relative_position + 1
        # Thousands of keys may share a row, so their weights are summed in float64.
        row_weights = weights.new_zeros(*weights.shape[:-1], rows, dtype=torch.float64)
        row_weights = row_weights.scatter_add(-1, row, weights.double())
        return row_weights.to(weights.dtype) @ self.values[self.layer].to(weights.dtype)
