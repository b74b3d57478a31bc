"""xPos, rotary position embedding with a decay (Sun et al. 2023, arXiv:2212.10554, eq. 9-10).

q_m -> z^(m/s) R(m) q_m,  k_n -> z^(-n/s) R(n) k_n,  z_i = (2i/d + g) / (1 + g),  s = 512, g = 0.4

for the i-th pair, so that the score decays as z_i^((m-n)/s). In the exponents, m and n are counted
from the middle of the sequence, as in torchscale (ceil(T/2)). This offset cancels in the score and
keeps the scale of the keys within the range of float32 up to a maximum length; longer sequences are
rejected. q, k [B, H, T, d]; pos [T]; z [d/2].
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.rope import Layout, Rope, per_channel
from posenc.encodings.spectra import Spectrum

MAX_SCALE = 1e36  # leaves room for q and k below the largest float32
MAX_GAMMA = 1e6  # far below 1e16, where z would round to 1 in float64: no decay


class Xpos(Rope):
    """RoPE with a decay per pair of channels, slower for the lower frequencies."""

    limitations: Mapping[str, str] = {
        "any_length": "the scale of the keys overflows float32 at distances far beyond scale_base"
    }

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Layout = "interleaved",
        scale_base: float = 512.0,
        gamma: float = 0.4,
    ) -> None:
        super().__init__(geometry, spectrum=spectrum, layout=layout)
        if not 0 < scale_base < math.inf or not 0 < gamma <= MAX_GAMMA:
            raise ValueError(
                f"scale_base={scale_base} must be finite and positive, and"
                f" gamma={gamma} must be positive and at most {MAX_GAMMA:.0f}"
            )
        width = geometry.head_dim
        pairs = torch.arange(width // 2, dtype=torch.float64)
        self.scale_base, self.decay = scale_base, (2 * pairs / width + gamma) / (1 + gamma)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        first, last = (int(end) for end in require_1d_positions(pos, "xpos").aminmax())
        if last - first >= self.max_length():
            raise ValueError(
                f"positions {first} to {last} span more than the {self.max_length()} tokens"
                f" that scale_base={self.scale_base} allows in float32; choose a larger scale_base"
            )
        q, k = super().rotate(x, q, k, pos)
        middle = first + math.ceil((last - first + 1) / 2)
        exponents = (pos.double() - middle)[:, None] / self.scale_base
        scale = self.decay.to(pos.device) ** exponents  # [T, d/2]
        scale = per_channel(scale, self.layout)
        return (q * scale).to(q.dtype), (k / scale).to(k.dtype)

    def max_length(self) -> int:
        return int(2 * self.scale_base * math.log(MAX_SCALE) / -math.log(self.decay[0]))
