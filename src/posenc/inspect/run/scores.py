"""Scores within the trained range and out of it.

A pair of query i and key j <= i is `within` where i < L; where the query is past L it is `near`
(i - j < L, a distance that training has shown, at positions that it has not) or `far` (i - j >= L).
An encoding of absolute positions fails in `near`, one of distances alone in `far`.
"""

import torch
from torch import Tensor

from posenc.inspect.run.watch import Rows

REGIONS = ("within", "near", "far")


class Scores:
    """Number, mean, spread and ends of the scores of each region, [layers, H, regions] each."""

    def __init__(self, layers: int, heads: int, train_length: int) -> None:
        self.train_length = train_length
        shape = layers, heads, len(REGIONS)
        self.count, self.sum, self.squares = (
            torch.zeros(shape, dtype=torch.float64) for _ in range(3)
        )
        self.lowest = torch.full(shape, torch.inf, dtype=torch.float64)
        self.highest = -self.lowest

    def see(self, rows: Rows) -> None:
        for region, inside in enumerate(self._regions(rows)):
            if not inside.any():
                continue
            at = rows.layer.index, slice(None), region
            found = rows.scores[..., inside].double().transpose(0, 1).flatten(1).cpu()  # [H, pairs]
            self.count[at] += found.shape[1]
            self.sum[at] += found.sum(1)
            self.squares[at] += found.square().sum(1)
            self.lowest[at] = torch.minimum(self.lowest[at], found.amin(1))
            self.highest[at] = torch.maximum(self.highest[at], found.amax(1))

    def _regions(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Masks [R, K] of the regions."""
        past, far = rows.query >= self.train_length, rows.distance >= self.train_length
        return rows.seen & ~past, rows.seen & past & ~far, rows.seen & far

    def mean(self) -> Tensor:
        """NaN for a region without pairs."""
        return self.sum / self.count

    def std(self) -> Tensor:
        """NaN for a region without pairs."""
        return (self.squares / self.count - self.mean().square()).clamp(min=0).sqrt()
