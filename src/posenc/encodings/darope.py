"""DaRoPE: RoPE with learned positions in its low frequencies (Levy et al. 2026).

    angle of pair p at position m = m f_p            if f_p >= 2 pi / L
                                  = c_h(x_m) f_p     otherwise
    c_h(x_m) = L sigmoid(w_h . x_m + a_h logit((m + 0.5) / L))

w [layers, H, D] ~ N(0, 0.1^2); a [layers, H] starts at 0.5. c is between 0 and the training length
L, so the pairs that use it never complete a rotation. The logit is defined for positions from 0 to
L - 1; here, other positions are clamped to this range (not in the paper). No official
implementation is known. q, k [B, H, T, d]; pos [T].
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.rope import Layout, rotate_by_angles
from posenc.encodings.spectra import geometric


class DaRope(PerLayer):
    """Rotates low-frequency pairs by a function of content and position instead of by position.

    RoPE's frequencies are f_p = base^(-2p/d).
    """

    limitations: Mapping[str, str] = {
        "shift_invariant": "the learned positions are not a linear function of position"
    }

    def __init__(
        self, geometry: Geometry, *, base: float = 500000.0, layout: Layout = "half"
    ) -> None:
        super().__init__(geometry)
        if geometry.head_dim % 2:
            raise ValueError(f"the head dimension {geometry.head_dim} must be even")
        self.layout = layout
        length, shape = geometry.train_length, (geometry.layers, geometry.heads)
        self.frequencies, _ = geometric(geometry.head_dim, length, length, base=base)
        self.is_high_frequency = self.frequencies >= 2 * math.pi / length
        if self.is_high_frequency.all():
            raise ValueError(
                f"base={base}: every pair completes a rotation within the {length} tokens of"
                f" train_length, so no position would be learned; use a larger base"
            )
        self.weight = nn.Parameter(0.1 * torch.randn(*shape, geometry.width))
        self.slope = nn.Parameter(torch.full(shape, 0.5))

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        frequencies = self.frequencies.to(x.device)
        position = require_1d_positions(pos, "darope").double()
        learned = self.learned_positions(x, position)[..., None]
        positions = torch.where(self.is_high_frequency.to(x.device), position[:, None], learned)
        return rotate_by_angles(q, k, (positions * frequencies)[..., None, :], self.layout)

    def learned_positions(self, x: Tensor, position: Tensor) -> Tensor:
        """Return c [B, H, T] in float64, which autocast does not downcast."""
        length = self.geometry.train_length
        weight, slope = self.weight[self.layer].double(), self.slope[self.layer].double()
        logit = ((position.clamp(0, length - 1) + 0.5) / length).logit()
        return length * (weight @ x.double().mT + slope[:, None] * logit).sigmoid()
