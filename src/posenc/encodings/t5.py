"""T5's relative bias (Raffel et al. 2020, 1910.10683, section 2.1).

    score_h(i, j) += B[bucket(i - j), h]

Buckets, as in mesh_tensorflow's `_relative_position_bucket` for a causal model: one for each
distance below half of them, then logarithmic up to `max_distance`, then the last for all beyond.
One table, shared by all layers. (T5 itself leaves out the 1/sqrt(d) on q . k; the host keeps it.)
"""

import math

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry


class T5(Encoding):
    """A trained bias for each bucket of distances and each head; B ~ N(0, 1/D)."""

    def __init__(self, geometry: Geometry, *, buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(geometry)
        if buckets < 2 or max_distance <= buckets // 2:
            raise ValueError(
                f"buckets={buckets} and max_distance={max_distance}: give 2 buckets or more,"
                f" and a max_distance above half of them"
            )
        self.buckets, self.max_distance = buckets, max_distance
        self.table = nn.Parameter(torch.empty(buckets, geometry.heads))
        nn.init.normal_(self.table, std=geometry.width**-0.5)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance of 0 or more, in whole numbers."""
        exact = self.buckets // 2
        ratio = (distance.double().clamp(min=exact) / exact).log()
        far = exact + (ratio / math.log(self.max_distance / exact) * (self.buckets - exact)).long()
        near = distance.clamp(min=0).long()
        return torch.where(near < exact, near, far.clamp(max=self.buckets - 1))

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return self.table.to(distance.dtype)[self.bucket(distance), head]
