"""Attention with linear biases (Press, Smith & Lewis 2022, 2108.12409, section 3).

    score_h(i, j) += -m_h (i - j),   m_h = 2^(-8h/H),  h = 1 .. H, for H a power of two

For other H the authors' code takes the slopes of the power of two below, then every other slope
of the power of two above (fairseq/models/transformer.py, get_slopes); the formula itself, as
FlexAttention's examples have it, gives others: 0.63 instead of 0.5 for the first of 12 heads. Not
divided by sqrt(d). Slopes [H]; a bias [H, R, K] of distances [R, K].
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Factors, Geometry


def formula_slopes(heads: int) -> list[float]:
    """2^(-8h/H), for any number of heads."""
    return [2 ** (-8 * h / heads) for h in range(1, heads + 1)]


def authors_slopes(heads: int) -> list[float]:
    """The slopes of the authors' code, for any number of heads."""
    below = 2 ** math.floor(math.log2(heads))
    between = [2 ** (-4 * h / below) for h in range(1, 2 * below + 1, 2)]
    return formula_slopes(below) + between[: heads - below]


class Alibi(Encoding):
    """A penalty that grows with distance, at a rate of its own in every head.

    The rates are fixed, or start there and are `trainable` (footnote 11: slower, and no better).
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        slopes: Literal["authors", "formula"] = "authors",
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        of_heads = authors_slopes if slopes == "authors" else formula_slopes
        rates = torch.tensor(of_heads(geometry.heads), dtype=torch.float64)
        self.slopes = nn.Parameter(rates.float()) if trainable else rates

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        return -self.slopes.to(distance)[head] * distance

    def bias_factors(self, x: Tensor, pos: Tensor) -> list[Factors] | None:
        if pos.ndim > 1:  # a distance between coordinates has no factors
            return None
        steps = (self.slopes.to(x.device)[:, None] * pos.double())[None, ..., None]
        return [(-steps, None), (None, steps)]
