"""Wavelets of distance as keys (Oka et al. 2025, 2502.02004, eq. 10-15).

    score(i, j) += q_i . p / sqrt(d),   p = (psi((t - b) / a)) for a in smallest 2^(0 .. scales-1),
                                            b in 0 .. d/scales - 1, all shifts of a scale together
    ricker    psi(u) = (1 - u^2) exp(-u^2 / 2)
    haar      psi(u) = -1 for -1 <= u < -1/2, 1 for -1/2 <= u < 0, 0 elsewhere
    gaussian  psi(u) = exp(-u^2)

A score [B, H, R, K] from q [B, H, R, d] and distances t [R, K], with p [d] for each of them.
Nothing is trained; all heads and layers are alike. The smallest scale is 1 for short training
lengths, 4 in the paper's for 4,096 tokens.

The paper contradicts itself on t: eq. 11-14 say query minus key, t >= 0 in a decoder; footnote 8
says that a decoder uses t < 0 alone and mirrors the Haar wavelet for that, and appendix A.6
counts 0, -1, -2, .. . Read the first way, haar is 0 beyond distance d/scales - 1, whatever the
scale, which does not fit the paper's results with it. So `time` is key_minus_query unless told.
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.relative import scores_with


def ricker(u: Tensor) -> Tensor:
    return (1 - u**2) * (-(u**2) / 2).exp()


def haar(u: Tensor) -> Tensor:
    return ((u >= -0.5) & (u < 0)).to(u.dtype) - ((u >= -1) & (u < -0.5)).to(u.dtype)


def gaussian(u: Tensor) -> Tensor:
    return (-(u**2)).exp()


FUNCTIONS = {"ricker": ricker, "haar": haar, "gaussian": gaussian}


class Wavelet(Encoding):
    """Each channel of a key one wavelet: `scales` of them, each twice as wide as the last."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        function: Literal["ricker", "haar", "gaussian"] = "ricker",
        scales: int = 8,
        smallest: float = 1.0,
        time: Literal["key_minus_query", "query_minus_key"] = "key_minus_query",
    ) -> None:
        super().__init__(geometry)
        width = geometry.head_width
        if scales < 1 or width % scales or smallest <= 0:
            raise ValueError(
                f"scales={scales} must divide a head's width of {width}, and smallest={smallest}"
                f" be above 0; change encoding.scales, model.width or model.heads"
            )
        self.function, self.sign = FUNCTIONS[function], -1 if time == "key_minus_query" else 1
        scale = smallest * 2.0 ** torch.arange(scales, dtype=torch.float64)
        self.scale = scale.repeat_interleave(width // scales)  # of each channel
        self.shift = torch.arange(width // scales).repeat(scales)

    def vectors(self, distance: Tensor) -> Tensor:
        """p [U, d] of distances [U]."""
        time = self.sign * distance.double()[:, None]
        scaled = (time - self.shift.to(time.device)) / self.scale.to(time.device)
        return self.function(scaled).to(distance.dtype)

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        return scores_with(q, distance, self.vectors) * q.shape[-1] ** -0.5
