"""Decoupled RoPE of multi-head latent attention (DeepSeek-V2 2024, arXiv:2405.04434, eq. 14-18).

    score(i, j) = (q_i . k_j + (R(i) W_q x_i) . (R(j) W_k x_j)) / sqrt(d + d_r)

q and k, which are not rotated, are the content part. W_q [layers, H d_r, D] gives every head a
rotary query, W_k [layers, d_r, D] one rotary key that all heads share; both are initialized like
the model's projections, from N(0, 1/D). The model here has no latent vectors: in DeepSeek-V2, k and
the values are projections of one compressed vector per token, so that only this vector and the
rotary key need to be cached; the content and rotary queries are projections of a second compressed
vector. q and k become [B, H, T, d + d_r].
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.rope import rotate_pairs
from posenc.encodings.spectra import Spectrum


class MlaRope(PerLayer):
    """RoPE in additional channels, whose keys are shared by all heads."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        rotary_dim: int | None = None,
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        if rotary_dim is None:  # DeepSeek-V2 uses 64 for a head dimension of 128
            rotary_dim = 2 * ((geometry.head_dim + 3) // 4)
        if rotary_dim < 2 or rotary_dim % 2:
            raise ValueError(f"rotary_dim={rotary_dim} must be even and at least 2")
        layers, width, std = geometry.layers, geometry.width, geometry.width**-0.5
        self.query = nn.Parameter(std * torch.randn(layers, geometry.heads * rotary_dim, width))
        self.key = nn.Parameter(std * torch.randn(layers, rotary_dim, width))
        self.sinusoids = SinusoidalFrequencies(
            spectrum, rotary_dim, geometry.train_length, trainable=trainable
        )
        self.limitations = {**self.limitations, **self.sinusoids.limitations}

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        heads, head_dim = q.shape[1], q.shape[-1]
        cos, sin = self.sinusoids(pos, torch.promote_types(q.dtype, torch.float32))
        weight_q, weight_k = (p[self.layer].to(q.dtype) for p in (self.query, self.key))
        with torch.autocast(x.device.type, enabled=False):
            rotary_q = (x.to(q.dtype) @ weight_q.mT).unflatten(-1, (heads, -1)).transpose(1, 2)
            rotary_k = (x.to(q.dtype) @ weight_k.mT)[:, None]
        rotary_q, rotary_k = (
            rotate_pairs(part, cos, sin, "half").to(q.dtype) for part in (rotary_q, rotary_k)
        )
        q = torch.cat([q, rotary_q], dim=-1)
        k = torch.cat([k, rotary_k.expand(-1, heads, -1, -1)], dim=-1)
        return q * (head_dim / q.shape[-1]) ** 0.5, k  # the model divides scores by sqrt(d)
