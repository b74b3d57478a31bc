"""Spectra of the width alone.

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import torch
from torch import Tensor

from posenc.encodings.spectra.base import Frequencies


def bands(width: int) -> Tensor:
    """The numbers 0 .. width/2 - 1 of the pairs, in float64; ValueError for an odd width."""
    if width % 2:
        raise ValueError(
            f"a spectrum needs an even width, not {width}; give an even number of channels"
        )
    return torch.arange(width // 2, dtype=torch.float64)


def geometric(width: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """base^(-2i/width) (Vaswani et al. 2017; Su et al. 2021, eq. 15)."""
    return falling(base, 2 * bands(width) / width), 1.0


def geometric_d1(
    width: int, train_length: int, length: int, *, base: float = 10000.0
) -> Frequencies:
    """base^(-i/(width-1)): half of the geometric spectrum's range (article 001's form)."""
    return falling(base, bands(width) / (width - 1)), 1.0


def geometric_t2t(
    width: int, train_length: int, length: int, *, base: float = 10000.0
) -> Frequencies:
    """base^(-i/(width/2-1)): the lowest frequency is 1/base exactly (tensor2tensor's timing)."""
    return falling(base, bands(width) / max(1, width // 2 - 1)), 1.0


def falling(base: float, exponents: Tensor) -> Tensor:
    """base^-exponent for each exponent; ValueError for a base that is not above 0."""
    if base <= 0:
        raise ValueError(f"base={base} must be above 0")
    return float(base) ** -exponents


def power(width: int, train_length: int, length: int, *, exponent: float = 2.0) -> Frequencies:
    """((i + 1) / (width/2))^exponent: frequencies that fall as a power of the band's number."""
    return ((bands(width) + 1) / (width / 2)).flip(0) ** exponent, 1.0


def powers_of_two(width: int, train_length: int, length: int) -> Frequencies:
    """2^-i: each band turns half as fast as the one before, as the digits of a binary counter."""
    return 2.0 ** -bands(width), 1.0
