"""Spectra: the frequencies of sinusoidal and rotary encodings, as functions of the width.

Each is `(width, ...) -> (frequencies [width/2] in float64, radians per token; magnitude)`, where
the magnitude multiplies cosine and sine.
"""

import torch
from torch import Tensor

Spectrum = tuple[Tensor, float]


def geometric(width: int, *, base: float = 10000.0) -> Spectrum:
    """base^(-2i/width), i = 0 .. width/2 - 1 (Vaswani et al. 2017; Su et al. 2021, eq. 15)."""
    if width % 2:
        raise ValueError(f"a spectrum needs an even width, not {width}")
    if base <= 0:
        raise ValueError(f"base={base} must be above 0")
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    return float(base) ** -exponents, 1.0
