"""LongRoPE in Hugging Face's form (Ding et al. 2024, arXiv:2402.13753; modeling_rope_utils).

f_i / l_i,   with a factor l_i for each pair
"""

import math

import torch

from posenc.encodings.spectra.context_extension import scaling_factor
from posenc.encodings.spectra.geometric import Frequencies, geometric


def longrope(
    dim: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    short_factor: list[float] | None = None,
    long_factor: list[float] | None = None,
) -> Frequencies:
    """Divide each frequency by its factor: `short_factor` up to L tokens, else `long_factor`.

    Cosine and sine are multiplied by sqrt(1 + ln s / ln L), which is not in the paper; if `factor`
    is set, this also applies up to L tokens. If `short_factor` is None, it is 1 for all pairs; if
    `long_factor` is None, it is the NTK-aware s^(2i/(dim-2)), a starting point of the paper's
    search. The paper's own form, which leaves the first tokens unchanged, is `encoding=longrope`.
    """
    frequencies, _ = geometric(dim, train_length, length, base=base)
    if train_length < 2:
        raise ValueError("train_length=1 must be at least 2, because LongRoPE divides by its log")
    s = scaling_factor(factor, train_length, length)
    attention_factor = math.sqrt(1 + math.log(s) / math.log(train_length)) if s > 1 else 1.0
    if length <= train_length:
        if short_factor is None:
            return frequencies, attention_factor
        return frequencies / checked_factors("short_factor", short_factor, dim), attention_factor
    if long_factor is None:
        return frequencies / ntk_factors(dim, s), attention_factor
    return frequencies / checked_factors("long_factor", long_factor, dim), attention_factor


def ntk_factors(dim: int, factor: float) -> torch.Tensor:
    """Return NTK-aware factors, from 1 for the highest frequency to `factor` for the lowest."""
    pairs = torch.arange(dim // 2, dtype=torch.float64)
    return float(factor) ** (2 * pairs / max(1, dim - 2))


def checked_factors(name: str, factors: list[float], dim: int) -> torch.Tensor:
    """Return the factors as a tensor; raises ValueError unless each pair has a positive one."""
    values = torch.tensor(factors, dtype=torch.float64)
    if len(values) != dim // 2:
        raise ValueError(
            f"{name}={factors} has {len(values)} factors; pass {dim // 2}, one for each pair of"
            f" the {dim} rotary channels"
        )
    if (values <= 0).any():
        raise ValueError(f"{name}={factors}: all factors must be positive")
    return values
