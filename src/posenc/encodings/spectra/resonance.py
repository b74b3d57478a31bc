"""Resonance RoPE: wavelengths of whole tokens (Wang et al. 2024, 2403.00071).

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import math

from posenc.encodings.spectra.base import Frequencies
from posenc.encodings.spectra.plain import geometric


def resonance(width: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """2 pi / round(2 pi / f) for every geometric frequency f, those beyond L too."""
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    wavelengths = (2 * math.pi / frequencies).round()
    if (wavelengths < 1).any():
        raise ValueError(f"base={base} rounds a wavelength to 0 tokens; give a base of 1 or more")
    return 2 * math.pi / wavelengths, magnitude
