"""The smallest RoPE base for a context length (Men et al. 2024, 2405.14591, eq. 9)."""

from itertools import accumulate, repeat
from operator import mul

import torch
from torch import Tensor

RATIO = 1.0005  # between consecutive candidates
LARGEST = 1e10
CHUNK = 32  # candidates at a time
STEPS = (64, 8, 1)  # most candidates already fail at one of every 64 distances


def smallest_base(head_width: int, length: int, at_least: float = 1.0) -> float:
    """Return the smallest base b with B_m = sum_i cos(m b^(-2i/d)) >= 0 for all m up to `length`.

    B_m is the expected margin of a key similar to the query over a random one at distance m.
    Larger bases may be negative again. Candidates are 0.05 % apart; the paper's own search is
    coarser (16,000 at d=128 and 2048 tokens, where 11,600 suffices). The search starts from
    `at_least`, the answer for a shorter length: the answer never decreases with length. Raises
    ValueError if no base up to 1e10 qualifies.
    """
    if head_width < 2 or head_width % 2 or length < 1:
        raise ValueError(f"head_width={head_width} must be even and length={length} 1 or more")
    distance, first = torch.arange(length + 1), at_least
    while first <= LARGEST:
        *bases, first = accumulate(repeat(RATIO, CHUNK), mul, initial=first)
        candidates = torch.tensor(bases, dtype=torch.float64)
        for step in STEPS:
            margins = expected_margin(head_width, candidates, distance[::step])
            candidates = candidates[margins.amin(-1) >= 0]
        if len(candidates) and candidates[0] <= LARGEST:
            return candidates[0].item()
    raise ValueError(f"no base up to {LARGEST:.0e} satisfies the bound for length={length}")


def expected_margin(head_width: int, bases: Tensor, distance: Tensor) -> Tensor:
    """Return B_m [N, M] for bases [N] and distances m [M], in float64."""
    pairs = torch.arange(head_width // 2, dtype=torch.float64)
    frequencies = bases[:, None, None] ** (-2 * pairs / head_width)
    return (distance.double()[:, None] * frequencies).cos().sum(-1)
