"""LongRoPE in its paper's form (Ding et al. 2024, 2402.13753, eq. 3).

angle_i(n) = n f_i          for the first positions, n < unscaled
           = n f_i / l_i    from there on, l_i a factor for each pair

Hugging Face's form (no first positions, factors chosen by length) is `encoding/spectrum=longrope`.
q, k [B, H, T, d]; pos [T]; factors l [d/2].
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from posenc.encodings.base import Geometry, along_sequence
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.spectra import Spectrum
from posenc.encodings.spectra.longrope import checked, ntk_factors


class LongRope(Rope):
    """Rotation slowed by a factor for each pair, past the first `unscaled` positions.

    One number s for `factors` stands for s^(2i/(d-2)), NTK-aware scaling, from which the paper's
    search for the factors of one model and length sets out.
    """

    limitations: Mapping[str, str] = {"shift": "the first positions are not slowed"}

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Layout = "concatenated",
        factors: float | list[float] = 4.0,
        unscaled: int = 4,
    ) -> None:
        super().__init__(geometry, spectrum=spectrum, layout=layout)
        width = geometry.head_width
        if isinstance(factors, list):
            slowed = checked("factors", factors, width)
        elif factors >= 1:
            slowed = ntk_factors(width, factors)
        else:
            raise ValueError(f"factors={factors} must be 1 or more, or a list")
        if unscaled < 0:
            raise ValueError(f"unscaled={unscaled} must be 0 or more")
        self.waves = SlowedWaves(spectrum, geometry, slowed, unscaled)


class SlowedWaves(SinusoidalFrequencies):
    """Angles divided by `factors` [width/2], except at the first positions."""

    def __init__(
        self, spectrum: Spectrum, geometry: Geometry, factors: Tensor, unscaled: int
    ) -> None:
        super().__init__(spectrum, geometry.head_width, geometry.train_length)
        self.factors, self.unscaled = factors, unscaled

    def angles(self, pos: Tensor) -> tuple[Tensor, float]:
        angles, magnitude = super().angles(along_sequence(pos, "longrope"))
        first = (pos < self.unscaled)[:, None, None]
        return torch.where(first, angles, angles / self.factors.to(pos.device)), magnitude
