"""Rotary position embedding (Su et al. 2021, 2104.09864, eq. 14-15 and 34).

q_m -> R(m) q_m,  k_n -> R(n) k_n,  R(m) turns the i-th pair of channels by m f_i,
so that the score (R(m) q_m) . (R(n) k_n) depends on positions through m - n alone.
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.angles import cos_sin
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.spectra import Spectrum


class Rope(Encoding):
    """Pairs are neighbours (`interleaved`, as in the paper) or i and i + d/2 (`concatenated`)."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Literal["interleaved", "concatenated"] = "concatenated",
    ) -> None:
        super().__init__(geometry)
        if geometry.head_width % 2:
            raise ValueError(
                f"rotary pairs need an even head width, but width={geometry.width}"
                f" / heads={geometry.heads} = {geometry.head_width};"
                f" change model.width or model.heads"
            )
        self.spectrum, self.layout = spectrum, layout
        spectrum(geometry.head_width, geometry.train_length, geometry.train_length)

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        geometry = self.geometry
        found = self.spectrum(geometry.head_width, geometry.train_length, q.shape[2])
        cos, sin = cos_sin(pos, *found, wide)
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.layout == "concatenated":
            a, b = x.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        else:
            a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        return turned.to(x.dtype)
