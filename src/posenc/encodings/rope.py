"""RoPE, rotary position embedding (Su et al. 2021, arXiv:2104.09864, eq. 14-15 and 34).

q_m -> R(m) q_m,  k_n -> R(n) k_n,  where R(m) rotates the i-th pair of channels by m f_i,
so that the score (R(m) q_m) . (R(n) k_n) depends on positions only through m - n.

With coordinates on several axes (Heo et al. 2024, arXiv:2403.13298, axial form), the channels are
divided evenly among the axes, and each part is rotated by the position on its axis. With `sections`
(M-RoPE of Qwen2-VL, Wang et al. 2024, arXiv:2409.12191, and Qwen3-VL), the d/2 frequencies are
split among the axes instead.

q, k [B, H, T, d]; pos [T] or [B, T, axes]; frequencies f [d/2] or [axes, d/2/axes].
"""

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.frequencies import SectionedFrequencies, SinusoidalFrequencies
from posenc.encodings.spectra import Spectrum

Layout = Literal["interleaved", "half"]


class Rope(Encoding):
    """Rotates pairs of channels: adjacent (`interleaved`), or i and i + rotary_dim/2 (`half`).

    `interleaved` is the layout of the paper and of GPT-J, `half` that of GPT-NeoX and of Llama in
    Hugging Face (rotate_half). Only the first `rotary_fraction` of each head's channels are
    rotated, with a spectrum of that width, as in GPT-NeoX; `spectrum=p_rope` instead sets some
    frequencies to 0. `sections` and `interleave` are passed to `SectionedFrequencies`.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Layout = "half",
        rotary_fraction: float = 1.0,
        trainable: bool = False,
        sections: list[int] | None = None,
        interleave: bool = False,
    ) -> None:
        super().__init__(geometry)
        self.layout = layout
        self.rotary_dim = _rotary_dim(geometry, rotary_fraction)
        factory = SinusoidalFrequencies
        if sections is not None:
            factory = partial(SectionedFrequencies, sections=sections, interleave=interleave)
        self.sinusoids = factory(
            spectrum, self.rotary_dim, geometry.train_length, trainable=trainable
        )
        self.limitations = {**self.limitations, **self.sinusoids.limitations}

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.sinusoids(pos, torch.promote_types(q.dtype, torch.float32))
        return self._rotate(q, cos, sin), self._rotate(k, cos, sin)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rotary, unrotated = x[..., : self.rotary_dim], x[..., self.rotary_dim :]
        rotated = rotate_pairs(rotary, cos, sin, self.layout).to(x.dtype)
        return torch.cat([rotated, unrotated], dim=-1) if unrotated.shape[-1] else rotated


def rotate_by_angles(q: Tensor, k: Tensor, angles: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Rotate the pairs of q and k by float64 angles [B, (H,) T, 1, d/2]."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    rotated_q, rotated_k = (rotate_pairs(part, cos, sin, layout) for part in (q, k))
    return rotated_q.to(q.dtype), rotated_k.to(k.dtype)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Rotate the pairs of x [B, H, T, d].

    cos and sin are [(B,) T, axes, d/2/axes], or [B, H, T, 1, d/2] if they differ between heads.
    """
    if cos.ndim == 4:  # batched: insert the head axis
        cos, sin = cos[:, None], sin[:, None]
    parts = x.unflatten(-1, (cos.shape[-2], -1))
    if layout == "half":
        a, b = parts.chunk(2, dim=-1)
        return torch.cat(_rotated(a, b, cos, sin), dim=-1).flatten(-2)
    a, b = parts.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack(_rotated(a, b, cos, sin), dim=-1).flatten(-3)


def per_channel(values: Tensor, layout: Layout) -> Tensor:
    """Repeat the value of each pair [..., d/2] for both of its channels [..., d]."""
    if layout == "half":
        return torch.cat([values, values], dim=-1)
    return values.repeat_interleave(2, dim=-1)


def _rotated(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return a cos - b sin and b cos + a sin."""
    return torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)


def _rotary_dim(geometry: Geometry, fraction: float) -> int:
    """Return the number of rotated channels; raises ValueError for an invalid fraction."""
    rotary_dim = int(fraction * geometry.head_dim)
    if not 0 < fraction <= 1 or rotary_dim < 2 or rotary_dim % 2:
        raise ValueError(
            f"RoPE rotates an even number of channels, but rotary_fraction={fraction} of the head"
            f" width {geometry.width} / {geometry.heads} = {geometry.head_dim} is {rotary_dim};"
            f" change encoding.rotary_fraction (at most 1), model.width or model.heads"
        )
    return rotary_dim
