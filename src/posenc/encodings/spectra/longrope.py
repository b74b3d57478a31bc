"""LongRoPE in the form of Hugging Face (Ding et al. 2024, 2402.13753; modeling_rope_utils).

    f_i / l_i,   l_i a factor for each pair

(width, train_length, length) -> (frequencies [width/2] in float64, magnitude).
"""

import math

import torch

from posenc.encodings.spectra.base import Frequencies
from posenc.encodings.spectra.plain import geometric
from posenc.encodings.spectra.scaled import growth


def longrope(
    width: int,
    train_length: int,
    length: int,
    *,
    base: float = 10000.0,
    factor: float | None = 2.0,
    short: list[float] | None = None,
    long: list[float] | None = None,
) -> Frequencies:
    """Every frequency over a factor of its own: `long` past the training length, `short` up to it.

    Cosine and sine are multiplied by sqrt(1 + ln s / ln L), which the paper does not have. None
    for `short` is 1 for all, None for `long` the NTK-aware s^(2i/(width-2)), from which the paper's
    search sets out. The paper's own form, with its first tokens left alone, is `encoding=longrope`.
    """
    frequencies, _ = geometric(width, train_length, length, base=base)
    if train_length < 2:
        raise ValueError("train_length=1 has no logarithm to divide by; give 2 or more")
    grown = growth(factor, train_length, length)
    magnitude = math.sqrt(1 + math.log(grown) / math.log(train_length)) if grown > 1 else 1.0
    if length > train_length:
        slowed = ntk_factors(width, grown) if long is None else checked("long", long, width)
    else:
        slowed = torch.ones(()) if short is None else checked("short", short, width)
    return frequencies / slowed, magnitude


def ntk_factors(width: int, factor: float) -> torch.Tensor:
    """What NTK-aware scaling divides each frequency by: from 1 for the highest to `factor`."""
    bands = torch.arange(width // 2, dtype=torch.float64)
    return float(factor) ** (2 * bands / max(1, width - 2))


def checked(name: str, factors: list[float], width: int) -> torch.Tensor:
    """One factor above 0 for each band."""
    found = torch.tensor(factors, dtype=torch.float64)
    if len(found) != width // 2 or (found <= 0).any():
        raise ValueError(
            f"{name}={factors} holds {len(found)} factors; give {width // 2} above 0, one for each"
            f" pair of the {width} channels that turn"
        )
    return found
