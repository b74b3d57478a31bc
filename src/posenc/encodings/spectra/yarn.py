"""YaRN (Peng et al. 2023, 2309.00071): NTK-by-parts with a temperature, in its two forms.

    f_i (1 - r_i) + (f_i / s) r_i,   r a ramp from 0 for fast bands to 1 for slow ones

Paper and authors' code disagree: the paper's ramp is linear in the number of turns within L (eq.
18), the code's, and Hugging Face's, in the number of the band between the bands of `fast` and
`slow` turns. At d=64, L=512, s=4 they differ by up to a factor of 1.77. Both multiply cosine and
sine by 0.1 ln s + 1 (eq. 22), which is squared on the scores.

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import math

from posenc.encodings.spectra.base import Frequencies
from posenc.encodings.spectra.plain import bands, geometric
from posenc.encodings.spectra.scaled import by_parts, growth


def yarn_paper(
    width: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    slow: float = 1.0,
    fast: float = 32.0,
) -> Frequencies:
    """The paper's ramp."""
    grown = growth(factor, train_length, length)
    knobs = {"base": base, "factor": grown, "slow": slow, "fast": fast}
    return by_parts(width, train_length, length, **knobs)[0], temperature(grown)


def yarn(
    width: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    slow: float = 1.0,
    fast: float = 32.0,
    truncate: bool = True,
) -> Frequencies:
    """The ramp of the authors' code and of Hugging Face, between whole bands if `truncate`."""
    frequencies, _ = geometric(width, train_length, length, base=base)
    if base == 1:
        raise ValueError("base=1 gives every band the same frequency; give another")
    if not 0 < slow < fast < math.inf:
        raise ValueError(f"slow={slow} must be above 0 and below fast={fast}; give finite turns")

    def band_of(turns: float) -> float:
        wavelengths = math.log(train_length / (2 * math.pi)) - math.log(turns)
        return width * wavelengths / (2 * math.log(base))

    first, last = band_of(fast), band_of(slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    ramp = ((bands(width) - first) / (last - first or 0.001)).clamp(0, 1)
    grown = growth(factor, train_length, length)
    return frequencies / grown * ramp + frequencies * (1 - ramp), temperature(grown)


def temperature(factor: float) -> float:
    """What cosine and sine are multiplied by."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
