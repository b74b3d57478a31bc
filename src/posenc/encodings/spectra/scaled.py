"""Spectra for sequences longer, by a factor s, than those of training; geometric at s = 1.

A `factor` of None is the length at hand over that of training, 1 at least ("dynamic scaling", YaRN,
2309.00071, section 3.3): nothing then changes up to the training length.

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import math

from posenc.encodings.spectra.base import Frequencies
from posenc.encodings.spectra.plain import geometric

LARGEST = 1e6  # factor: past it powers of it leave float64


def interpolated(
    width: int, train_length: int, length: int, *, base: float = 10000.0, factor: float | None = 2.0
) -> Frequencies:
    """Position interpolation: every frequency over s (Chen et al. 2023, 2306.15595, eq. 4)."""
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    return frequencies / growth(factor, train_length, length), magnitude


def ntk(
    width: int, train_length: int, length: int, *, base: float = 10000.0, factor: float | None = 2.0
) -> Frequencies:
    """NTK-aware: base s^(d/(d-2)), so that the lowest frequency alone is divided by s.

    (Peng et al. 2023, YaRN, 2309.00071, eq. 16)
    """
    grown = growth(factor, train_length, length)
    return geometric(width, train_length, length, base=base * stretch(width, grown))


def dynamic_ntk(
    width: int, train_length: int, length: int, *, base: float = 10000.0
) -> Frequencies:
    """NTK-aware with s = max(1, length / L), as in the YaRN paper, section 3.3."""
    return ntk(width, train_length, length, base=base, factor=None)


def dynamic_ntk_hf(
    width: int, train_length: int, length: int, *, base: float = 10000.0, factor: float = 2.0
) -> Frequencies:
    """Hugging Face's dynamic NTK: base (f max(length, L) / L - (f - 1))^(d/(d-2)).

    Equals the paper's for a factor f of 1 alone.
    """
    times = max(length, train_length) / train_length
    grown = growth(factor, train_length, length) * times - (factor - 1)
    return geometric(width, train_length, length, base=base * stretch(width, grown))


def by_parts(
    width: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    slow: float = 1.0,
    fast: float = 32.0,
) -> Frequencies:
    """NTK-by-parts (YaRN, eq. 17-20); Llama 3's rule is this with slow 1 and fast 4.

    What turns fewer than `slow` times within L is divided by s, what turns more than `fast` times
    is left alone, and between them the share of the two is linear in the number of turns.
    """
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    if not 0 <= slow < fast:
        raise ValueError(f"slow={slow} must be 0 or above and below fast={fast}")
    turns = train_length * frequencies / (2 * math.pi)
    kept = ((turns - slow) / (fast - slow)).clamp(0, 1)
    slowed = frequencies / growth(factor, train_length, length)
    return (1 - kept) * slowed + kept * frequencies, magnitude


def growth(factor: float | None, train_length: int, length: int) -> float:
    """How many times longer than in training: as told, or as the length at hand is."""
    if factor is None:
        return max(1.0, length / train_length)
    if not 1 <= factor <= LARGEST:
        raise ValueError(
            f"factor={factor} must lie from 1 to {LARGEST:.0f}, or be null for the length at hand"
        )
    return float(factor)


def stretch(width: int, factor: float) -> float:
    """What the base is multiplied by so that the lowest frequency is divided by `factor`."""
    if width < 4:
        raise ValueError(f"a rotary width of {width} has one band; NTK scaling needs 4 or more")
    return factor ** (width / (width - 2))
