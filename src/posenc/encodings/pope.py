"""Polar position embedding, PoPE (Gopalakrishnan et al. 2025, 2509.10534, eq. 5-8).

    score(m, n) = sum_{c=0}^{d-1} softplus(q_c) softplus(k_c) cos((n - m) f_c + delta_c) / sqrt(d)

with a frequency for every channel, f_c = base^(-c/d): what the content says is in the sizes, where
it stands in the angles. The phases delta [H, d], one set a layer, are trained within [-2 pi, 0],
from 0 or from anywhere in it. q and k come back twice as wide as the values, [B, H, T, 2d].
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
    """Sizes from the contents, angles from positions and trained phases."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        phases: Literal["zero", "uniform"] = "zero",
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        width = geometry.head_width
        self.waves = SinusoidalFrequencies(
            spectrum, 2 * width, geometry.train_length, trainable=trainable
        )
        self.limitations = {**self.limitations, **self.waves.limitations}
        self.phase = nn.Parameter(torch.zeros(geometry.layers, geometry.heads, 1, width))
        if phases == "uniform":
            nn.init.uniform_(self.phase, -2 * math.pi, 0)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        cos, sin = (self._of_heads(part) for part in self.waves(pos, wide))
        phase = self.phase[self.layer].to(wide).clamp(-2 * math.pi, 0)
        ahead_cos = cos * phase.cos() - sin * phase.sin()
        ahead_sin = sin * phase.cos() + cos * phase.sin()
        size_q, size_k = softplus(q.to(wide)), softplus(k.to(wide))
        polar_q = torch.cat([size_q * cos, size_q * sin], dim=-1)
        polar_k = torch.cat([size_k * ahead_cos, size_k * ahead_sin], dim=-1)
        return polar_q.to(q.dtype), polar_k.to(k.dtype)

    def _of_heads(self, wave: Tensor) -> Tensor:
        """[T, 1, d] or [B, T, axes, d/axes] as [T, d] or [B, 1, T, d]."""
        flat = wave.flatten(-2)
        return flat[:, None] if wave.ndim == 4 else flat
