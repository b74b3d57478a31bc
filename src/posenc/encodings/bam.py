"""BAM, the Bayesian attention mechanism (Bianchessi et al. 2026, arXiv:2505.22842).

    score_h(i, j) += -exp(s_h) (i - j + eps)^a_h,   eps = 1e-5

s [H] and a [H] are learnable and shared by all layers. exp(s) starts at ALiBi's slopes and a at
`initial_exponent`; with the default of 1, BAM starts as ALiBi. The authors' code (models/bam.py of
ArthurSBianchessi/BAM) also has a location parameter, which is fixed at 0 by default and omitted
here. The authors' variant with SSMax multiplies the whole score, including this bias, by t ln n
for n keys, with a learned t; the `temperature` encoding multiplies only q . k.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.alibi import authors_slopes
from posenc.encodings.base import Geometry
from posenc.encodings.formula_bias import FormulaBias

EPSILON = 1e-5


class Bam(FormulaBias):
    """A generalized Gaussian prior over distances, with two learnable parameters per head."""

    def __init__(self, geometry: Geometry, *, initial_exponent: float = 1.0) -> None:
        super().__init__(geometry)
        self.log_scales = nn.Parameter(torch.tensor(authors_slopes(geometry.heads)).log())
        self.exponents = nn.Parameter(torch.full((geometry.heads,), float(initial_exponent)))

    def coefficients(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return self.log_scales.to(like).exp(), self.exponents.to(like)

    @staticmethod
    def formula(distance: Tensor, *coefficients: Tensor) -> Tensor:
        scale, exponent = coefficients
        return -scale * (distance.clamp(min=0) + EPSILON) ** exponent
