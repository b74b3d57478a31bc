"""T5's relative bias (Raffel et al. 2020, arXiv:1910.10683, section 2.1).

    score_h(i, j) += B[bucket(i - j), h]

Buckets are those of mesh_tensorflow's `_relative_position_bucket` for a causal model: the first
half has one bucket per distance, and the others are spaced logarithmically up to `max_distance`;
the last bucket also holds all longer distances. One table is shared by all layers. (T5 itself omits
the 1/sqrt(d) on q . k; here the model keeps it.) The bias is [H, R, K] for distances [R, K].
"""

import math

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry


class T5(Encoding):
    """A learned bias for each distance bucket and head, initialized from N(0, 1/D)."""

    def __init__(
        self, geometry: Geometry, *, num_buckets: int = 32, max_distance: int = 128
    ) -> None:
        super().__init__(geometry)
        if num_buckets < 2 or max_distance <= num_buckets // 2:
            raise ValueError(
                f"num_buckets={num_buckets} must be at least 2, and"
                f" max_distance={max_distance} must be more than num_buckets / 2"
            )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.table = nn.Parameter(torch.empty(num_buckets, geometry.heads))
        nn.init.normal_(self.table, std=geometry.width**-0.5)

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance; negative distances share the bucket of 0."""
        num_exact = self.num_buckets // 2
        log_ratio = (distance.double().clamp(min=num_exact) / num_exact).log()
        fraction = log_ratio / math.log(self.max_distance / num_exact)
        log_bucket = num_exact + (fraction * (self.num_buckets - num_exact)).long()
        exact_bucket = distance.clamp(min=0).long()
        log_bucket = log_bucket.clamp(max=self.num_buckets - 1)
        return torch.where(exact_bucket < num_exact, exact_bucket, log_bucket)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return self.table.to(distance.dtype)[self.bucket(distance), head]
