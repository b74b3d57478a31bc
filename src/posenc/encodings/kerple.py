"""KERPLE (Chi et al. 2022, arXiv:2205.09921): distance kernels, two learnable parameters per head.

    logarithmic: score_h(i, j) += -r1 ln(1 + r2 (i - j))
    power:       score_h(i, j) += -r1 (i - j)^r2

r1 and r2 [H] are shared by all layers. They are initialized and clamped as in the authors'
repository (chijames/KERPLE, `ParallelKerpleLog` and `ParallelKerplePower`): to at least 0.01, and
the exponent of the power form to at most 2. The bias is [H, R, K] for distances [R, K].
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry
from posenc.encodings.formula_bias import FormulaBias

MIN_PARAMETER = 0.01


class KerpleLog(FormulaBias):
    """-r1 ln(1 + r2 distance); r1 ~ U(0, 2), r2 ~ U(0, 1)."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.r1 = nn.Parameter(2 * torch.rand(geometry.heads))
        self.r2 = nn.Parameter(torch.rand(geometry.heads))

    def coefficients(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return clamp_in_place(self.r1).to(like), clamp_in_place(self.r2).to(like)

    @staticmethod
    def formula(distance: Tensor, *coefficients: Tensor) -> Tensor:
        r1, r2 = coefficients
        return -r1 * torch.log1p(r2 * distance.clamp(min=0))


class KerplePower(FormulaBias):
    """-r1 distance^r2; r1 ~ U(0, 1), r2 ~ U(0, 2)."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.r1 = nn.Parameter(torch.rand(geometry.heads))
        self.r2 = nn.Parameter(2 * torch.rand(geometry.heads))

    def coefficients(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return clamp_in_place(self.r1).to(like), clamp_in_place(self.r2, maximum=2.0).to(like)

    @staticmethod
    def formula(distance: Tensor, *coefficients: Tensor) -> Tensor:
        r1, r2 = coefficients
        return -r1 * distance.clamp(min=0) ** r2


def clamp_in_place(parameter: nn.Parameter, maximum: float | None = None) -> nn.Parameter:
    """Clamp the parameter in place, as the authors do, so that it always receives a gradient.

    Every layer clamps it again, which has no effect. With no_grad() instead of `data`, autograd
    would raise an error, because a tensor saved for the backward pass is modified in place.
    """
    parameter.data.clamp_(min=MIN_PARAMETER, max=maximum)
    return parameter
