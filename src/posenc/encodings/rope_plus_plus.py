"""RoPE++ without additional heads: imaginary attention (Liu et al. 2025, arXiv:2512.07525).

    real head:       score = (R(m) q_m) . (R(n) k_n) / sqrt(d)         = Re z / sqrt(d)
    imaginary head:  score = (R(m - pi/2) q_m) . (R(n) k_n) / sqrt(d)  = Im z / sqrt(d)

with z = sum_c q_c conj(k_c) e^(i (m - n) f_c), where each pair of channels is a complex number.
R(m - pi/2) rotates every pair as R(m) does, and then by -pi/2. The modes are those of
OpenMOSS/rope_pp (modeling_llama_rope_pp.py) that keep RoPE's number of heads. The imaginary heads
are the second half (`imagh`), every second head (`imagx`) or all of them (`imago`). In RoPE++
itself, every real head shares q and k with an imaginary one, so that the model has half the
projections (EH) or twice the heads (EC). q, k [B, H, T, d].
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.spectra import Spectrum


class RopePlusPlus(Rope):
    """RoPE in which the queries of some or all heads are rotated by a further -pi/2."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        imag_mode: Literal["imagh", "imagx", "imago"] = "imagh",
        layout: Layout = "half",
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry, spectrum=spectrum, layout=layout, trainable=trainable)
        if geometry.heads == 1 and imag_mode != "imago":
            raise ValueError(
                f"imag_mode={imag_mode} needs real and imaginary heads, but the model has one head;"
                f" change model.heads, or choose imag_mode=imago"
            )
        head = torch.arange(geometry.heads)
        self.imaginary = {
            "imagh": head >= geometry.heads // 2,
            "imagx": head % 2 == 1,
            "imago": head >= 0,
        }[imag_mode]

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.sinusoids(pos, torch.promote_types(q.dtype, torch.float32))
        imaginary = self.imaginary.to(q.device)[:, None, None]
        # cos(a - pi/2) = sin(a) and sin(a - pi/2) = -cos(a)
        q = torch.where(imaginary, self._rotate(q, sin, -cos), self._rotate(q, cos, sin))
        return q, self._rotate(k, cos, sin)
