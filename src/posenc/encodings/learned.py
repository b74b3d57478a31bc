"""Learned absolute positions (Gehring et al. 2017, 1705.03122; GPT-2).

x_m + P[m],   P [length, D] ~ N(0, std^2)
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry, along_sequence


class Learned(Encoding):
    """One trained vector for each of `length` positions (the training length where null)."""

    limitations: Mapping[str, str] = {"extrapolates": "a table has no row past its end"}

    def __init__(self, geometry: Geometry, *, length: int | None = None, std: float = 0.02) -> None:
        super().__init__(geometry)
        self.length = geometry.train_length if length is None else length
        if std < 0:
            raise ValueError(f"std={std} must be 0 or above")
        if self.length < geometry.train_length:
            raise ValueError(
                f"length={self.length} is below train_length={geometry.train_length};"
                f" give at least {geometry.train_length}"
            )
        self.table = nn.Parameter(torch.empty(self.length, geometry.width))
        nn.init.normal_(self.table, std=std)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        if len(along_sequence(pos, "learned")) > self.length:
            raise ValueError(f"{len(pos)} positions, but the table ends at length={self.length}")
        return x + self.table[pos].to(x.dtype)

    def max_length(self) -> int:
        return self.length
