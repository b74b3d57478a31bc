"""Sinusoidal absolute position embeddings (Vaswani et al. 2017, arXiv:1706.03762, section 3.5).

x_m -> x_m + p_m,   p_m = (sin m f_0, cos m f_0, sin m f_1, ...),   f_i = base^(-2i/D)

With coordinates on several axes, p concatenates one embedding per axis, each with an equal part of
the width. x [B, T, D]; pos [T] or [B, T, axes]; p [T, D] or [B, T, D].
"""

from typing import Literal

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.frequencies import SinusoidalFrequencies
from posenc.encodings.spectra import Spectrum


class Sinusoidal(Encoding):
    """Sines and cosines, `interleaved` as in the paper, or `concatenated` as in tensor2tensor."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        spectrum: Spectrum,
        layout: Literal["interleaved", "concatenated"] = "interleaved",
        trainable: bool = False,
    ) -> None:
        super().__init__(geometry)
        self.layout = layout
        self.sinusoids = SinusoidalFrequencies(
            spectrum, geometry.width, geometry.train_length, trainable=trainable
        )
        self.limitations = {**self.limitations, **self.sinusoids.limitations}

    def position_embedding(self, pos: Tensor, dtype: torch.dtype) -> Tensor:
        """Return p: [T, D] for positions [T], [B, T, D] for coordinates [B, T, axes].

        The attention factor of a spectrum such as YaRN applies to scores and is ignored here.
        """
        angles, _ = self.sinusoids.angles(pos)
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        if self.layout == "concatenated":
            return torch.cat([sin, cos], dim=-1).flatten(-2)
        return torch.stack([sin, cos], dim=-1).flatten(-3)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.position_embedding(pos, x.dtype)
