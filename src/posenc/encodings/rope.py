"""Rotary position embedding (Su et al. 2021, 2104.09864, eq. 14-15 and 34).

q_m -> R(m) q_m,  k_n -> R(n) k_n,  R(m) turns the i-th pair of channels by m f_i,
so that the score (R(m) q_m) . (R(n) k_n) depends on positions through m - n alone.

Coordinates of several axes (Heo et al. 2024, 2403.13298, axial form) share the channels: the
first width/axes of them turn with the first axis, and so on, so that axes do not mix.

q, k [B, H, T, d]; pos [T] or [B, T, axes]; frequencies f [d/2], or d/2/axes of them for each axis.
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.spectra import Spectrum

Layout = Literal["interleaved", "concatenated"]


class Rope(Encoding):
    """Pairs are neighbours (`interleaved`, as in the paper) or i and i + d/2 (`concatenated`).

    Only the first `share` of the channels turns, with a spectrum of that width (GPT-NeoX's partial
    rotation; `spectrum=highest` is the other way to leave channels alone).
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Layout = "concatenated",
        share: float = 1.0,
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        self.layout = layout
        self.turned = rotary_dim(geometry, share)
        self.waves = SinusoidalFrequencies(
            spectrum, self.turned, geometry.train_length, trainable=trainable
        )
        self.limitations = {**self.limitations, **self.waves.limitations}

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        cos, sin = self.waves(pos, wide)
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        moving, rest = x[..., : self.turned], x[..., self.turned :]
        turned = turn(moving, cos, sin, self.layout).to(x.dtype)
        return torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned


def turn(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """x [B, H, T, d], its pairs turned by the angles of cos and sin ([B,] T, axes, d/2/axes)."""
    if cos.ndim == 4:  # coordinates of a batch; heads come between
        cos, sin = cos[:, None], sin[:, None]
    parts = x.unflatten(-1, (cos.shape[-2], -1))
    if layout == "concatenated":
        a, b = parts.chunk(2, dim=-1)
        return torch.cat(_turned(a, b, cos, sin), dim=-1).flatten(-2)
    a, b = parts.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack(_turned(a, b, cos, sin), dim=-1).flatten(-3)


def _turned(a: Tensor, b: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """a cos - b sin and b cos + a sin."""
    return torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)


def rotary_dim(geometry: Geometry, share: float) -> int:
    """How many of a head's channels turn; ValueError where they make no pairs."""
    width = int(share * geometry.head_width)
    if not 0 < share <= 1 or width < 2 or width % 2:
        raise ValueError(
            f"rotary pairs need an even number of channels, but share={share} of a head's width"
            f" {geometry.width} / {geometry.heads} = {geometry.head_width} is {width};"
            f" change encoding.share, model.width or model.heads"
        )
    return width
