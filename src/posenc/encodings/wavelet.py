"""Wavelets of the relative position act as keys (Oka et al. 2025, arXiv:2502.02004, eq. 10-15).

    score(i, j) += q_i . p / sqrt(d),   p = (psi((t - b) / a)) for a in min_scale 2^(0 .. scales-1),
                                        b in 0 .. d/scales - 1, grouped by scale
    ricker    psi(u) = (1 - u^2) exp(-u^2 / 2)
    haar      psi(u) = -1 for -1 <= u < -1/2, 1 for -1/2 <= u < 0, 0 elsewhere
    gaussian  psi(u) = exp(-u^2)
    morlet    psi(u) = exp(-u^2) cos(frequency a u) = exp(-u^2) cos(frequency (t - b))

The scores are [B, H, R, K] for q [B, H, R, d] and relative positions t [R, K], each of which has a
vector p [d]. There are no learnable parameters; all heads and layers use the same vectors.
`min_scale` defaults to 1, which suits short training lengths; the paper uses 4 for 4,096 tokens.
In the paper's Morlet wavelet, the scale does not affect the cosine (section 6.3.1); `frequency`
defaults to 1 radian per token.

The paper contradicts itself on the sign of t. Eq. 11-14 say query minus key, so t >= 0 in a causal
model; footnote 8 says that a causal model uses only t < 0 and therefore mirrors the Haar wavelet,
and appendix A.6 counts 0, -1, -2, ... With query minus key, haar would be 0 beyond distance
d/scales - 2 at every scale, which does not fit the paper's results for it. The default of
`relative_position` is therefore key_minus_query.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.relative_scores import relative_scores


def ricker(u: Tensor) -> Tensor:
    return (1 - u**2) * (-(u**2) / 2).exp()


def haar(u: Tensor) -> Tensor:
    return ((u >= -0.5) & (u < 0)).to(u.dtype) - ((u >= -1) & (u < -0.5)).to(u.dtype)


def gaussian(u: Tensor) -> Tensor:
    return (-(u**2)).exp()


FUNCTIONS = {"ricker": ricker, "haar": haar, "gaussian": gaussian, "morlet": gaussian}


class Wavelet(Encoding):
    """One wavelet per channel of a key: `scales` scales, each twice the previous one."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        function: Literal["ricker", "haar", "gaussian", "morlet"] = "ricker",
        scales: int = 8,
        min_scale: float = 1.0,
        frequency: float | None = None,
        relative_position: Literal["key_minus_query", "query_minus_key"] = "key_minus_query",
    ) -> None:
        super().__init__(geometry)
        width = geometry.head_dim
        if scales < 1 or width % scales or min_scale <= 0:
            raise ValueError(
                f"scales={scales} must divide the head dimension of {width}, and"
                f" min_scale={min_scale} must be positive; change encoding.scales, model.width or"
                f" model.heads"
            )
        if frequency is not None and (function != "morlet" or not 0 < frequency < math.inf):
            raise ValueError(
                f"frequency={frequency} with function={function}: a frequency must be finite and"
                f" positive, and applies only to function=morlet"
            )
        self.function = FUNCTIONS[function]
        self.frequency = (frequency or 1.0) if function == "morlet" else None
        self.sign = -1 if relative_position == "key_minus_query" else 1
        scale = min_scale * 2.0 ** torch.arange(scales, dtype=torch.float64)
        self.scale = scale.repeat_interleave(width // scales)  # one per channel
        self.shift = torch.arange(width // scales).repeat(scales)

    def vectors(self, distance: Tensor) -> Tensor:
        """Return p [U, d] for distances [U]."""
        t = self.sign * distance.double()[:, None]
        shifted = t - self.shift.to(t.device)
        values = self.function(shifted / self.scale.to(t.device))
        if self.frequency is not None:
            values = values * (self.frequency * shifted).cos()
        return values.to(distance.dtype)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        return relative_scores(q, distance, self.vectors) * q.shape[-1] ** -0.5
