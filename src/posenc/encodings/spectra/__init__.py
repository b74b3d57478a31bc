"""Spectra: the frequencies of sinusoidal and rotary encodings.

A spectrum is a pure function `(width, train_length, length, *, knobs) -> (frequencies [width/2] in
float64, radians per token; magnitude)`. `train_length` is the L of training and `length` that of
the sequence at hand, in tokens; the magnitude multiplies cosine and sine. Most look at the width
alone. The wavelength of a frequency f is 2 pi / f tokens.
"""

from posenc.encodings.spectra.base import Frequencies, Spectrum
from posenc.encodings.spectra.longrope import longrope
from posenc.encodings.spectra.plain import (
    geometric,
    geometric_d1,
    geometric_t2t,
    power,
    powers_of_two,
)
from posenc.encodings.spectra.resonance import resonance
from posenc.encodings.spectra.scaled import (
    by_parts,
    dynamic_ntk,
    dynamic_ntk_hf,
    interpolated,
    ntk,
)
from posenc.encodings.spectra.truncated import half_truncated, highest, hope, lowest
from posenc.encodings.spectra.yarn import yarn, yarn_paper

__all__ = [
    "Frequencies",
    "Spectrum",
    "by_parts",
    "dynamic_ntk",
    "dynamic_ntk_hf",
    "geometric",
    "geometric_d1",
    "geometric_t2t",
    "half_truncated",
    "highest",
    "hope",
    "interpolated",
    "longrope",
    "lowest",
    "ntk",
    "power",
    "powers_of_two",
    "resonance",
    "yarn",
    "yarn_paper",
]
