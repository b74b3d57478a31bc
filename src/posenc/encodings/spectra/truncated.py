"""Spectra in which some frequencies are 0; their pairs of channels do not encode positions."""

import math

import torch

from posenc.encodings.spectra.geometric import Frequencies, geometric, negative_powers


def p_rope(
    width: int, train_length: int, length: int, *, base: float = 10000.0, fraction: float = 0.75
) -> Frequencies:
    """p-RoPE: keeps the int(fraction * width/2) highest frequencies and sets the others to 0.

    The frequencies kept are spaced as in the full spectrum (Barbero et al. 2024, 2410.06205,
    appendix D).
    """
    frequencies, attention_factor = geometric(width, train_length, length, base=base)
    kept = _num_kept_pairs(width, fraction)
    return frequencies.where(torch.arange(width // 2) < kept, 0.0), attention_factor


def p_rope_reversed(
    width: int, train_length: int, length: int, *, base: float = 10000.0, fraction: float = 0.75
) -> Frequencies:
    """Keeps the int(fraction * width/2) lowest frequencies and sets the others to 0."""
    frequencies, attention_factor = geometric(width, train_length, length, base=base)
    dropped = width // 2 - _num_kept_pairs(width, fraction)
    return frequencies.where(torch.arange(width // 2) >= dropped, 0.0), attention_factor


def hope(width: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """HoPE: frequencies that complete no rotation within L are 0 (Chen et al. 2024, 2410.21216).

    Frequencies of at least 2 pi / L are kept, as in DaRoPE (Levy et al. 2026, eq. 2).
    """
    frequencies, attention_factor = geometric(width, train_length, length, base=base)
    return frequencies.where(frequencies >= 2 * math.pi / train_length, 0.0), attention_factor


def half_truncated(
    width: int, train_length: int, length: int, *, base: float = 1024.0
) -> Frequencies:
    """The frequencies base^-t for width/4 evenly spaced t from 0 to 1, and width/4 zeros.

    This is modded-nanogpt's half-truncated RoPE. The lowest nonzero frequency is 1/base.
    """
    if width % 4:
        raise ValueError(
            f"width={width} must be a multiple of 4 for half of the pairs to be rotated"
        )
    kept = negative_powers(base, torch.linspace(0, 1, width // 4, dtype=torch.float64))
    return torch.cat([kept, torch.zeros_like(kept)]), 1.0


def _num_kept_pairs(width: int, fraction: float) -> int:
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction={fraction} must be from 0 to 1")
    return int(fraction * width / 2)
