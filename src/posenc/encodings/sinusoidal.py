"""Sinusoidal absolute positions (Vaswani et al. 2017, 1706.03762, section 3.5).

p_m = (sin m f_0, cos m f_0, sin m f_1, ...),   x_m + p_m,   f_i = base^(-2i/D)
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.angles import cos_sin
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.spectra import Spectrum


class Sinusoidal(Encoding):
    """Sines and cosines of the model's width, `interleaved` as in the paper or `concatenated`."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Literal["interleaved", "concatenated"] = "interleaved",
    ) -> None:
        super().__init__(geometry)
        self.spectrum, self.layout = spectrum, layout
        spectrum(geometry.width, geometry.train_length, geometry.train_length)

    def code(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """p [T, D] for the positions pos [T]."""
        geometry = self.geometry
        found = self.spectrum(geometry.width, geometry.train_length, len(pos))
        cos, sin = cos_sin(pos, *found, dtype)
        if self.layout == "concatenated":
            return torch.cat([sin, cos], dim=-1)
        return torch.stack([sin, cos], dim=-1).flatten(-2)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.code(pos, x.dtype)
