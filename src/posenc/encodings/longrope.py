"""LongRoPE as in its paper (Ding et al. 2024, arXiv:2402.13753, eq. 3).

angle_i(n) = n f_i          for the first positions, n < start_tokens
           = n f_i / l_i    for all later positions, with a factor l_i for each pair

Hugging Face's form (no start tokens, factors chosen by length) is `encoding/spectrum=longrope`.
q, k [B, H, T, d]; pos [T]; factors l [d/2].
"""

import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.spectra import Spectrum
from posenc.encodings.spectra.longrope import checked_factors, ntk_factors


class LongRope(Rope):
    """RoPE with angles divided by a factor per pair, except at the first `start_tokens` positions.

    If `factors` is a single number s, the factors are s^(2i/(d-2)), as in NTK-aware scaling, a
    starting point of the paper's search for factors.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Layout = "half",
        factors: float | list[float] = 4.0,
        start_tokens: int = 4,
    ) -> None:
        super().__init__(geometry, spectrum=spectrum, layout=layout)
        width = geometry.head_dim
        if isinstance(factors, list):
            per_pair = checked_factors("factors", factors, width)
        elif factors >= 1:
            per_pair = ntk_factors(width, factors)
        else:
            raise ValueError(f"factors={factors} must be at least 1, or a list")
        if start_tokens < 0:
            raise ValueError(f"start_tokens={start_tokens} must be non-negative")
        self.sinusoids = RescaledFrequencies(spectrum, geometry, per_pair, start_tokens)
        if start_tokens and bool((per_pair != 1).any()):
            reason = "the first positions are not rescaled"
            self.limitations = {**self.limitations, "shift_invariant": reason}


class RescaledFrequencies(SinusoidalFrequencies):
    """Angles divided by `factors` [width/2], except at the first positions."""

    def __init__(
        self, spectrum: Spectrum, geometry: Geometry, factors: Tensor, start_tokens: int
    ) -> None:
        super().__init__(spectrum, geometry.head_dim, geometry.train_length)
        self.factors, self.start_tokens = factors, start_tokens

    def angles(self, pos: Tensor) -> tuple[Tensor, float]:
        angles, attention_factor = super().angles(require_1d_positions(pos, "longrope"))
        start = (pos < self.start_tokens)[:, None, None]
        return torch.where(start, angles, angles / self.factors.to(pos.device)), attention_factor
