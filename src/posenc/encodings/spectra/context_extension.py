"""Spectra for sequences that are longer than in training by a factor s; geometric for s = 1.

A `factor` of null means the length of the sequence divided by the training length, at least 1
("dynamic scaling", YaRN, 2309.00071, section 3.3): up to the training length nothing changes.

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import math

from posenc.encodings.spectra.geometric import Frequencies, geometric

LARGEST_FACTOR = 1e6  # powers of larger factors leave float64


def position_interpolation(
    width: int, train_length: int, length: int, *, base: float = 10000.0, factor: float | None = 2.0
) -> Frequencies:
    """Position interpolation: every frequency divided by s (Chen et al. 2023, 2306.15595, eq. 4).

    Hugging Face calls it "linear" scaling.
    """
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    return frequencies / scaling_factor(factor, train_length, length), magnitude


def ntk(
    width: int, train_length: int, length: int, *, base: float = 10000.0, factor: float | None = 2.0
) -> Frequencies:
    """NTK-aware scaling: base s^(d/(d-2)), so that only the lowest frequency is divided by s.

    (Peng et al. 2023, YaRN, 2309.00071, eq. 16)
    """
    s = scaling_factor(factor, train_length, length)
    return geometric(width, train_length, length, base=base * _base_scale(width, s))


def dynamic_ntk(
    width: int, train_length: int, length: int, *, base: float = 10000.0
) -> Frequencies:
    """NTK-aware scaling with s = max(1, length / L), as in the YaRN paper, section 3.3."""
    return ntk(width, train_length, length, base=base, factor=None)


def dynamic_ntk_hf(
    width: int, train_length: int, length: int, *, base: float = 10000.0, factor: float = 2.0
) -> Frequencies:
    """Hugging Face's dynamic NTK: base (f max(length, L) / L - (f - 1))^(d/(d-2)).

    It equals the YaRN paper's only for a factor f of 1.
    """
    ratio = max(length, train_length) / train_length
    s = scaling_factor(factor, train_length, length) * ratio - (factor - 1)
    return geometric(width, train_length, length, base=base * _base_scale(width, s))


def ntk_by_parts(
    width: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> Frequencies:
    """NTK-by-parts (YaRN, eq. 17-20); Llama 3's rule is this with beta_fast 4 and beta_slow 1.

    Frequencies of fewer than `beta_slow` rotations within L are divided by s, those of more than
    `beta_fast` are unchanged, and between them the mix is linear in the number of rotations.
    """
    frequencies, magnitude = geometric(width, train_length, length, base=base)
    if not 0 <= beta_slow < beta_fast:
        raise ValueError(f"beta_slow={beta_slow} must be 0 or more and below beta_fast={beta_fast}")
    rotations = train_length * frequencies / (2 * math.pi)
    unchanged = ((rotations - beta_slow) / (beta_fast - beta_slow)).clamp(0, 1)
    interpolated = frequencies / scaling_factor(factor, train_length, length)
    return (1 - unchanged) * interpolated + unchanged * frequencies, magnitude


def scaling_factor(factor: float | None, train_length: int, length: int) -> float:
    """Return s: the configured factor, or for None the sequence's length over the training length.

    Raises ValueError for a factor below 1 or too large for float64.
    """
    if factor is None:
        return max(1.0, length / train_length)
    if not 1 <= factor <= LARGEST_FACTOR:
        raise ValueError(
            f"factor={factor} must be from 1 to {LARGEST_FACTOR:.0f}, or null for the ratio of the"
            f" sequence's length to the training length"
        )
    return float(factor)


def _base_scale(width: int, factor: float) -> float:
    """Return what to multiply the base by so that the lowest frequency is divided by `factor`."""
    if width < 4:
        raise ValueError(f"NTK scaling needs 4 rotary channels or more, not {width}")
    return factor ** (width / (width - 2))
