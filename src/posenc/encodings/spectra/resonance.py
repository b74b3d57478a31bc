"""Resonance RoPE: wavelengths of whole tokens (Wang et al. 2024, 2403.00071)."""

import math

from posenc.encodings.spectra.base import Frequencies
from posenc.encodings.spectra.plain import geometric


def resonance(width: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """2 pi / round(2 pi / f) for every geometric frequency f, those beyond L too."""
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    return 2 * math.pi / (2 * math.pi / frequencies).round(), magnitude
