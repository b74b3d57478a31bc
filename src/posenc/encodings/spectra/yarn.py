"""YaRN (Peng et al. 2023, arXiv:2309.00071): NTK-by-parts and attention temperature, in two forms.

    f_i (1 - r_i) + (f_i / s) r_i,   where r is a ramp from 0 (high frequencies) to 1 (low ones)

The paper and the authors' code disagree. The paper's ramp is linear in the number of rotations
within L (eq. 18). The ramp in the code, which Hugging Face also uses, is linear in the index of the
pair, between the pairs with `beta_fast` and `beta_slow` rotations. At d=64, L=512, s=4 the
frequencies differ by a factor of up to 1.77. Both multiply cosine and sine by 0.1 ln s + 1 (eq. 22)
and thus the scores by its square.
"""

import math

from posenc.encodings.spectra.context_extension import ntk_by_parts, scaling_factor
from posenc.encodings.spectra.geometric import Frequencies, geometric, pair_indices


def yarn_paper(
    dim: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
) -> Frequencies:
    """YaRN with the paper's ramp."""
    s = scaling_factor(factor, train_length, length)
    frequencies, _ = ntk_by_parts(
        dim,
        train_length,
        length,
        base=base,
        factor=s,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
    )
    return frequencies, yarn_attention_factor(s)


def yarn(
    dim: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Frequencies:
    """YaRN with the ramp of the authors' code; `truncate` rounds the ends of the ramp outward."""
    frequencies, _ = geometric(dim, train_length, length, base=base)
    if base == 1:
        raise ValueError("base=1 gives every pair the same frequency; choose another base")
    if not 0 < beta_slow < beta_fast < math.inf:
        raise ValueError(
            f"beta_slow={beta_slow} must be positive and below beta_fast={beta_fast},"
            f" which must be finite"
        )

    def pair_index(rotations: float) -> float:
        log_inverse_frequency = math.log(train_length / (2 * math.pi)) - math.log(rotations)
        return dim * log_inverse_frequency / (2 * math.log(base))

    first, last = pair_index(beta_fast), pair_index(beta_slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    ramp = ((pair_indices(dim) - first) / (last - first or 0.001)).clamp(0, 1)
    s = scaling_factor(factor, train_length, length)
    return frequencies / s * ramp + frequencies * (1 - ramp), yarn_attention_factor(s)


def yarn_attention_factor(factor: float) -> float:
    """Return the attention factor, by which cosine and sine are multiplied (eq. 22)."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
