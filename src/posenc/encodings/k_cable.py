"""K-CABLE, a kernelized form of CABLE's penalty (Veisi et al. 2025, arXiv:2503.08067, section 5.6).

    score_h(i, j) += -ln(1 + b_h(i, j)^2),   b_h(i, j) = g_h(i) (S_h(i) - S_h(j)) as in cable.py

The penalty grows with the logarithm of the distance, as in KERPLE. This form is not in the authors'
repository. The bias [B, H, R, K] does not factorize.
"""

from torch import Tensor

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.cable import Cable


class KCable(PerLayer):
    """-ln(1 + b^2) for CABLE's penalty b; `weighted` is as in CABLE."""

    def __init__(self, geometry: Geometry, *, weighted: bool = True) -> None:
        super().__init__(geometry)
        self.cable = Cable(geometry, weighted=weighted)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        bias = self.cable.at_layer(self.layer).content_bias(x, q, k, distance, pos_q)
        return -bias.square().log1p()
