"""Spectra in which some frequencies are 0; their pairs of channels do not encode positions."""

import math

import torch

from posenc.encodings.spectra.geometric import Frequencies, geometric, negative_powers


def p_rope(
    dim: int, train_length: int, length: int, *, base: float = 10000.0, fraction: float = 0.75
) -> Frequencies:
    """p-RoPE: keeps the int(fraction * dim/2) highest frequencies and sets the others to 0.

    The frequencies kept are spaced as in the full spectrum (Barbero et al. 2024, arXiv:2410.06205,
    appendix D).
    """
    frequencies, attention_factor = geometric(dim, train_length, length, base=base)
    kept = _num_kept_pairs(dim, fraction)
    return frequencies.where(torch.arange(dim // 2) < kept, 0.0), attention_factor


def p_rope_reversed(
    dim: int, train_length: int, length: int, *, base: float = 10000.0, fraction: float = 0.75
) -> Frequencies:
    """Keeps the int(fraction * dim/2) lowest frequencies and sets the others to 0."""
    frequencies, attention_factor = geometric(dim, train_length, length, base=base)
    dropped = dim // 2 - _num_kept_pairs(dim, fraction)
    return frequencies.where(torch.arange(dim // 2) >= dropped, 0.0), attention_factor


def hope(dim: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """HoPE: frequencies below one rotation in L are 0 (Chen et al. 2024, arXiv:2410.21216).

    Frequencies of at least 2 pi / L are kept, as in DaRoPE (Levy et al. 2026, eq. 2).
    """
    frequencies, attention_factor = geometric(dim, train_length, length, base=base)
    return frequencies.where(frequencies >= 2 * math.pi / train_length, 0.0), attention_factor


def half_truncated(
    dim: int, train_length: int, length: int, *, base: float = 1024.0
) -> Frequencies:
    """The frequencies base^-t for dim/4 evenly spaced t from 0 to 1, and dim/4 zeros.

    This is modded-nanogpt's half-truncated RoPE. The lowest nonzero frequency is 1/base.
    """
    if dim % 4:
        raise ValueError(
            f"the number of rotary channels, {dim}, must be a multiple of 4, so that half of the"
            f" pairs are rotated"
        )
    kept = negative_powers(base, torch.linspace(0, 1, dim // 4, dtype=torch.float64))
    return torch.cat([kept, torch.zeros_like(kept)]), 1.0


def _num_kept_pairs(dim: int, fraction: float) -> int:
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction} must be between 0 and 1")
    return int(fraction * dim / 2)
