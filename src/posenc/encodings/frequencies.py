"""Cosines and sines of position times frequency, for one axis or several axes.

Angles are computed in float64: in float32 they are off by 1e-3 at position 100,000.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.spectra import Spectrum

LENGTH_DEPENDENT = "past the training length the frequencies depend on the sequence's length"


class SinusoidalFrequencies(nn.Module):
    """The width/2 frequencies of a spectrum, fixed or with a learnable offset.

    With `trainable` the parameter is an offset from the spectrum's frequencies that starts at zero,
    so that the initial frequencies are exact in any precision. `limitations` holds `prefix` if the
    frequencies depend on the length of the sequence.
    """

    def __init__(
        self, spectrum: Spectrum, width: int, train_length: int, *, trainable: bool = False
    ) -> None:
        super().__init__()
        self.spectrum, self.width, self.train_length = spectrum, width, train_length
        within, past = (
            spectrum(width, train_length, length) for length in (train_length, 2 * train_length)
        )
        length_dependent = within[1] != past[1] or not torch.equal(within[0], past[0])
        self.limitations = {"prefix": LENGTH_DEPENDENT} if length_dependent else {}
        self.offset = nn.Parameter(torch.zeros(width // 2)) if trainable else None

    def frequencies(self, axes: int, length: int, device: torch.device) -> tuple[Tensor, float]:
        """Return float64 frequencies [axes, width/2/axes] and the magnitude.

        Each axis has the spectrum of its part of the width. Raises ValueError if the width cannot
        be split into pairs for that many axes.
        """
        if self.width % (2 * axes):
            raise ValueError(
                f"a width of {self.width} cannot be split into pairs for {axes} axes;"
                f" choose a multiple of {2 * axes}"
            )
        frequencies, magnitude = self.spectrum(self.width // axes, self.train_length, length)
        frequencies = frequencies.to(device).expand(axes, -1)
        if self.offset is not None:
            frequencies = frequencies + self.offset.to(device, torch.float64).view(axes, -1)
        return frequencies, magnitude

    def angles(self, pos: Tensor) -> tuple[Tensor, float]:
        """Return angles in radians (float64) and the magnitude.

        Angles are [T, 1, width/2] for positions [T] and [B, T, axes, width/2/axes] for coordinates
        [B, T, axes].
        """
        points = (pos[:, None] if pos.ndim == 1 else pos).to(torch.float64)
        frequencies, magnitude = self.frequencies(points.shape[-1], points.shape[-2], pos.device)
        return points[..., None] * frequencies, magnitude

    def forward(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of the angles times the magnitude, cast to `dtype` at the end."""
        angles, magnitude = self.angles(pos)
        return (magnitude * angles.cos()).to(dtype), (magnitude * angles.sin()).to(dtype)
