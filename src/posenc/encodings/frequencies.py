"""Cosines and sines of position times frequency, for one axis or several.

Angles are formed in float64: in float32 they are off by 1e-3 at position 100,000.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.spectra import Spectrum

FOLLOWS = "past the training length the frequencies follow the sequence's"


class SinusoidalFrequencies(nn.Module):
    """The waves of a spectrum of `width`: width/2 frequencies, fixed or trained from there.

    What is trained is an offset from the spectrum's frequencies, zero at first: as good as the
    frequencies themselves, and exact at the start in any precision. `limitations` are what a
    spectrum that looks at the sequence's length makes of the encoding.
    """

    def __init__(
        self, spectrum: Spectrum, width: int, train_length: int, *, trainable: bool = False
    ) -> None:
        super().__init__()
        self.spectrum, self.width, self.train_length = spectrum, width, train_length
        lengths = train_length, 2 * train_length
        within, past = (spectrum(width, train_length, length) for length in lengths)
        follows = within[1] != past[1] or not torch.equal(within[0], past[0])
        self.limitations = {"prefix": FOLLOWS} if follows else {}
        self.offset = nn.Parameter(torch.zeros(width // 2)) if trainable else None

    def frequencies(self, axes: int, length: int, device: torch.device) -> tuple[Tensor, float]:
        """Frequencies [axes, width/2/axes] in float64, each axis a spectrum of its share."""
        if self.width % (2 * axes):
            raise ValueError(
                f"{axes} axes cannot share a width of {self.width} in pairs;"
                f" give one that {2 * axes} divides"
            )
        found, magnitude = self.spectrum(self.width // axes, self.train_length, length)
        found = found.to(device).expand(axes, -1)
        if self.offset is not None:
            found = found + self.offset.to(device, torch.float64).view(axes, -1)
        return found, magnitude

    def angles(self, pos: Tensor) -> tuple[Tensor, float]:
        """Radians in float64, [T, 1, width/2] for positions [T] and [B, T, axes, width/2/axes]
        for coordinates [B, T, axes]; and the magnitude."""
        points = (pos[:, None] if pos.ndim == 1 else pos).to(torch.float64)
        found, magnitude = self.frequencies(points.shape[-1], points.shape[-2], pos.device)
        return points[..., None] * found, magnitude

    def forward(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the angles, cast to `dtype` only at the end."""
        angles, magnitude = self.angles(pos)
        return (magnitude * angles.cos()).to(dtype), (magnitude * angles.sin()).to(dtype)
