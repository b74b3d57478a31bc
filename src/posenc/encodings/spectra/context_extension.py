"""Spectra for sequences s times as long as in training; if s is 1, the geometric spectrum.

A `factor` of None means s = max(1, sequence length / training length), so that nothing changes up
to the training length ("dynamic scaling", YaRN, arXiv:2309.00071, section 3.3).
"""

import math

from posenc.encodings.spectra.geometric import Frequencies, geometric

MAX_FACTOR = 1e6  # keeps powers of the factor well within the range of float64


def position_interpolation(
    dim: int, train_length: int, length: int, *, base: float = 10000.0, factor: float | None = 2.0
) -> Frequencies:
    """Position interpolation: frequencies divided by s (Chen et al. 2023, arXiv:2306.15595, eq. 4).

    Hugging Face calls it "linear" scaling.
    """
    frequencies, attention_factor = geometric(dim, train_length, length, base=base)
    return frequencies / scaling_factor(factor, train_length, length), attention_factor


def ntk(
    dim: int, train_length: int, length: int, *, base: float = 10000.0, factor: float | None = 2.0
) -> Frequencies:
    """NTK-aware scaling: base * s^(d/(d-2)) (Peng et al. 2023, YaRN, arXiv:2309.00071, eq. 16).

    The lowest frequency is divided by s, higher ones by less.
    """
    s = scaling_factor(factor, train_length, length)
    return geometric(dim, train_length, length, base=base * _base_scale(dim, s))


def dynamic_ntk(dim: int, train_length: int, length: int, *, base: float = 10000.0) -> Frequencies:
    """NTK-aware scaling with s = max(1, length / L), as in the YaRN paper, section 3.3."""
    return ntk(dim, train_length, length, base=base, factor=None)


def dynamic_ntk_hf(
    dim: int, train_length: int, length: int, *, base: float = 10000.0, factor: float = 2.0
) -> Frequencies:
    """Hugging Face's dynamic NTK: the base times (f max(length, L) / L - (f - 1))^(d/(d-2)).

    It matches the YaRN paper's dynamic NTK only if the factor f is 1.
    """
    ratio = max(length, train_length) / train_length
    s = scaling_factor(factor, train_length, length) * ratio - (factor - 1)
    return geometric(dim, train_length, length, base=base * _base_scale(dim, s))


def ntk_by_parts(
    dim: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> Frequencies:
    """NTK-by-parts (YaRN, eq. 17-20); Llama 3 uses it with beta_fast 4 and beta_slow 1.

    Frequencies with fewer than `beta_slow` rotations within L are divided by s, and frequencies
    with more than `beta_fast` are unchanged; in between, the two are interpolated linearly in the
    number of rotations.
    """
    frequencies, attention_factor = geometric(dim, train_length, length, base=base)
    if not 0 <= beta_slow < beta_fast:
        raise ValueError(f"beta_slow={beta_slow} must be non-negative and below {beta_fast=}")
    rotations = train_length * frequencies / (2 * math.pi)
    ramp = ((rotations - beta_slow) / (beta_fast - beta_slow)).clamp(0, 1)
    interpolated = frequencies / scaling_factor(factor, train_length, length)
    return (1 - ramp) * interpolated + ramp * frequencies, attention_factor


def scaling_factor(factor: float | None, train_length: int, length: int) -> float:
    """Return s: the configured factor or, if that is None, max(1, length / train_length).

    Raises ValueError unless a configured factor is from 1 to MAX_FACTOR.
    """
    if factor is None:
        return max(1.0, length / train_length)
    if not 1 <= factor <= MAX_FACTOR:
        raise ValueError(f"factor={factor} must be from 1 to {MAX_FACTOR:.0f}")
    return float(factor)


def _base_scale(dim: int, factor: float) -> float:
    """Return the multiplier of the base that divides the lowest frequency by `factor`."""
    if dim < 4:
        raise ValueError(f"NTK scaling needs at least 4 channels, not {dim}")
    return factor ** (dim / (dim - 2))
