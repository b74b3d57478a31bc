"""The geometric spectrum, its variants, and other spectra that depend only on the dimension.

Each spectrum maps (dim, train_length, length) to float64 frequencies [dim/2] and the attention
factor, by which cosine and sine are multiplied.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Frequencies = tuple[Tensor, float]
Spectrum = Callable[[int, int, int], Frequencies]


def pair_indices(dim: int) -> Tensor:
    """Return 0 .. dim/2 - 1, one per pair, in float64; raises ValueError for an odd dim."""
    if dim % 2:
        raise ValueError(f"a spectrum needs an even number of channels, not {dim}")
    return torch.arange(dim // 2, dtype=torch.float64)


def geometric(dim: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """The frequencies base^(-2i/dim) (Vaswani et al. 2017; Su et al. 2021, eq. 15)."""
    return negative_powers(base, 2 * pair_indices(dim) / dim), 1.0


def geometric_d1(dim: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """The frequencies base^(-i/(dim-1)), with exponents from 0 to only about -1/2."""
    return negative_powers(base, pair_indices(dim) / (dim - 1)), 1.0


def geometric_t2t(
    dim: int, train_length: int, length: int, *, base: float = 10000.0
) -> Frequencies:
    """The frequencies base^(-i/(dim/2-1)); the lowest is exactly 1/base, as in tensor2tensor."""
    return negative_powers(base, pair_indices(dim) / max(1, dim // 2 - 1)), 1.0


def negative_powers(base: float, exponents: Tensor) -> Tensor:
    """Return base^-exponent for each exponent; raises ValueError unless base is positive."""
    if base <= 0:
        raise ValueError(f"base={base} must be positive")
    return float(base) ** -exponents


def power(dim: int, train_length: int, length: int, *, exponent: float = 2.0) -> Frequencies:
    """A power of evenly spaced, decreasing values: ((dim/2 - i) / (dim/2))^exponent."""
    return ((pair_indices(dim) + 1) / (dim / 2)).flip(0) ** exponent, 1.0


def powers_of_two(dim: int, train_length: int, length: int) -> Frequencies:
    """The frequencies 2^-i; each is half the previous one, as in a binary counter."""
    return 2.0 ** -pair_indices(dim), 1.0


def resonance(dim: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """Resonance RoPE (Wang et al. 2024, arXiv:2403.00071): 2 pi / round(2 pi / f) for geometric f.

    All wavelengths are whole numbers of tokens, including those longer than L.
    """
    frequencies, attention_factor = geometric(dim, train_length, length, base=base)
    wavelengths = (2 * math.pi / frequencies).round()
    if (wavelengths < 1).any():
        raise ValueError(
            f"with base={base}, a wavelength rounds to 0 tokens; choose a base of at least 1"
        )
    return 2 * math.pi / wavelengths, attention_factor
