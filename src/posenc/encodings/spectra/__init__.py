"""Spectra: the frequencies of sinusoidal and rotary encodings.

A spectrum is a pure function

    (dim, train_length, length, *, parameters) -> (frequencies [dim/2], attention factor)

of the number of channels, the training length L and the length of the current sequence in tokens.
Frequencies are float64, in radians per token (a wavelength is 2 pi / f tokens). The attention
factor (Hugging Face's term) multiplies cosine and sine. Many spectra depend only on the dimension.
"""

from posenc.encodings.spectra.context_extension import (
    dynamic_ntk,
    dynamic_ntk_hf,
    ntk,
    ntk_by_parts,
    position_interpolation,
)
from posenc.encodings.spectra.geometric import (
    Frequencies,
    Spectrum,
    geometric,
    geometric_d1,
    geometric_t2t,
    power,
    powers_of_two,
    resonance,
)
from posenc.encodings.spectra.longrope import longrope
from posenc.encodings.spectra.truncated import half_truncated, hope, p_rope, p_rope_reversed
from posenc.encodings.spectra.yarn import yarn, yarn_paper
