"""ALiBi, attention with linear biases (Press, Smith & Lewis 2022, arXiv:2108.12409, section 3).

    score_h(i, j) += -m_h (i - j),   m_h = 2^(-8h/H),  h = 1 .. H, for H a power of two

For other H, the authors' code takes the slopes of the next smaller power of two, then every other
slope of the next larger one (fairseq/models/transformer.py, get_slopes). The formula itself, as in
FlexAttention's examples, gives different slopes: 0.63 instead of 0.5 for the first of 12 heads.
The bias is not divided by sqrt(d). Slopes are [H]; the bias is [H, R, K] for distances [R, K].
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.encodings.base import Factors, Geometry
from posenc.encodings.formula_bias import FormulaBias


def formula_slopes(heads: int) -> list[float]:
    """Return 2^(-8h/H) for each head, for any number of heads."""
    return [2 ** (-8 * h / heads) for h in range(1, heads + 1)]


def authors_slopes(heads: int) -> list[float]:
    """Return the slopes of the authors' code, for any number of heads."""
    power = 2 ** math.floor(math.log2(heads))
    interleaved = [2 ** (-4 * h / power) for h in range(1, 2 * power + 1, 2)]
    return formula_slopes(power) + interleaved[: heads - power]


class Alibi(FormulaBias):
    """A penalty proportional to distance, with one slope per head.

    With `trainable`, the slopes are learnable, initialized to the fixed ones. The paper found
    learnable slopes slower and no better (footnote 11).
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        slopes: Literal["authors", "formula"] = "authors",
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        slopes_for = authors_slopes if slopes == "authors" else formula_slopes
        values = torch.tensor(slopes_for(geometry.heads), dtype=torch.float64)
        self.slopes = nn.Parameter(values.float()) if trainable else values

    def coefficients(self, like: Tensor) -> tuple[Tensor]:
        return (self.slopes.to(like),)

    @staticmethod
    def formula(distance: Tensor, *coefficients: Tensor) -> Tensor:
        (slope,) = coefficients
        return -slope * distance

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        if pos.ndim > 1:  # the distance between coordinates does not factorize
            return None
        return None, (self.slopes.to(x.device)[:, None] * pos.double())[None, ..., None]
