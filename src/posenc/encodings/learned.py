"""Learned absolute position embeddings (Gehring et al. 2017, arXiv:1705.03122; GPT-2).

x_m + P[m],   P [max_length, D] ~ N(0, std^2)
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.coordinates import require_1d_positions


class Learned(Encoding):
    """One learned embedding per position, up to `max_length`; None means the training length."""

    limitations: Mapping[str, str] = {"any_length": "the table has a fixed number of rows"}

    def __init__(
        self, geometry: Geometry, *, max_length: int | None = None, std: float = 0.02
    ) -> None:
        super().__init__(geometry)
        rows = geometry.train_length if max_length is None else max_length
        if std < 0:
            raise ValueError(f"std={std} must be non-negative")
        if rows < geometry.train_length:
            raise ValueError(
                f"max_length={rows} is below train_length={geometry.train_length};"
                f" choose at least {geometry.train_length}"
            )
        self.table = nn.Parameter(torch.empty(rows, geometry.width))
        nn.init.normal_(self.table, std=std)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        if len(require_1d_positions(pos, "learned")) > self.max_length():
            raise ValueError(
                f"{len(pos)} positions exceed the table's max_length={self.max_length()};"
                f" use shorter sequences or a larger encoding.max_length"
            )
        try:
            rows = self.table[pos]
        except IndexError:  # on a CPU; on a GPU, a device-side assert fails
            raise ValueError(
                f"position {int(pos.max())} is beyond the table's max_length={self.max_length()};"
                f" use lower positions or a larger encoding.max_length"
            ) from None
        return x + rows.to(x.dtype)

    def max_length(self) -> int:
        return len(self.table)
