"""PoPE, polar-coordinate embedding (Gopalakrishnan et al. 2025, arXiv:2509.10534, eq. 5-8).

    score(m, n) = sum_{c=0}^{d-1} softplus(q_c) softplus(k_c) cos((n - m) f_c + delta_c) / sqrt(d)

with a frequency for every channel, f_c = base^(-c/d): content is in the magnitudes, position in the
angles. Every layer learns its own phases delta [H, d] within [-2 pi, 0]; they are initialized to 0
or uniformly in that interval. q and k become twice as wide as the values, [B, H, T, 2d].
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.spectra import Spectrum


class Pope(PerLayer):
    """Magnitudes from content, angles from positions and learned phases."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        phase_init: Literal["zero", "uniform"] = "zero",
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        width = geometry.head_dim
        self.sinusoids = SinusoidalFrequencies(
            spectrum, 2 * width, geometry.train_length, trainable=trainable
        )
        self.limitations = {**self.limitations, **self.sinusoids.limitations}
        self.phase = nn.Parameter(torch.zeros(geometry.layers, geometry.heads, 1, width))
        if phase_init == "uniform":
            nn.init.uniform_(self.phase, -2 * math.pi, 0)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(q.dtype, torch.float32)
        cos, sin = (_with_head_axis(table) for table in self.sinusoids(pos, dtype))
        phase = self.phase[self.layer].to(dtype).clamp(-2 * math.pi, 0)
        cos_k = cos * phase.cos() - sin * phase.sin()
        sin_k = sin * phase.cos() + cos * phase.sin()
        magnitude_q, magnitude_k = softplus(q.to(dtype)), softplus(k.to(dtype))
        polar_q = torch.cat([magnitude_q * cos, magnitude_q * sin], dim=-1)
        polar_k = torch.cat([magnitude_k * cos_k, magnitude_k * sin_k], dim=-1)
        return polar_q.to(q.dtype), polar_k.to(k.dtype)


def _with_head_axis(table: Tensor) -> Tensor:
    """Reshape [T, 1, d] to [T, d], and [B, T, axes, d/axes] to [B, 1, T, d]."""
    flat = table.flatten(-2)
    return flat[:, None] if table.ndim == 4 else flat
