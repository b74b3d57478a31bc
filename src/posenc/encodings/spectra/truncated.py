"""Spectra of which a part stands still, its pairs carrying no position.

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import math

import torch

from posenc.encodings.spectra.base import Frequencies
from posenc.encodings.spectra.plain import falling, geometric


def highest(
    width: int, train_length: int, length: int, *, base: float = 10000.0, share: float = 0.75
) -> Frequencies:
    """p-RoPE: the int(share width/2) highest frequencies stay, the others become 0.

    The spacing is unchanged (Barbero et al. 2024, 2410.06205, appendix D).
    """
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    kept = _kept(width, share)
    return frequencies.where(torch.arange(width // 2) < kept, 0.0), magnitude


def lowest(
    width: int, train_length: int, length: int, *, base: float = 10000.0, share: float = 0.75
) -> Frequencies:
    """p-RoPE reversed: the int(share width/2) lowest frequencies stay, the others become 0."""
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    dropped = width // 2 - _kept(width, share)
    return frequencies.where(torch.arange(width // 2) >= dropped, 0.0), magnitude


def hope(width: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """HoPE: what completes no turn within the training length becomes 0 (Chen et al. 2410.21216).

    Kept are the frequencies of 2 pi / L and above; the rule is attested through DaRoPE's eq. 2.
    """
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    return frequencies.where(frequencies >= 2 * math.pi / train_length, 0.0), magnitude


def half_truncated(
    width: int, train_length: int, length: int, *, base: float = 1024.0
) -> Frequencies:
    """base^-t for t in width/4 even steps from 0 to 1, then as many zeros.

    (modded-nanogpt's half-truncated rotation, with base 1024; its frequencies end at 1/base.)
    """
    if width % 4:
        raise ValueError(f"width={width} must be a multiple of 4, so that half of the pairs turn")
    kept = falling(base, torch.linspace(0, 1, width // 4, dtype=torch.float64))
    return torch.cat([kept, torch.zeros_like(kept)]), 1.0


def _kept(width: int, share: float) -> int:
    if not 0 <= share <= 1:
        raise ValueError(f"share={share} must be from 0 to 1")
    return int(share * width / 2)
