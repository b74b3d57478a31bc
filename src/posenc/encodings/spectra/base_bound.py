"""The smallest RoPE base for a context length (Men et al. 2024, arXiv:2405.14591, eq. 9)."""

from itertools import accumulate, repeat
from operator import mul

import torch
from torch import Tensor

CANDIDATE_RATIO = 1.0005  # ratio of consecutive candidates
MAX_BASE = 1e10
CHUNK_SIZE = 32  # candidates tested at once
DISTANCE_STRIDES = (64, 8, 1)  # most candidates already fail at a multiple of 64


def smallest_base(head_dim: int, length: int, min_base: float = 1.0) -> float:
    """Return the smallest base b with B_m = sum_i cos(m b^(-2i/d)) >= 0 for all m up to `length`.

    B_m is the expected margin of a key similar to the query over a random one at distance m. Larger
    bases may violate the bound again. Candidates are 0.05% apart; the paper's own search is coarser
    (it finds 16,000 at d=128 and 2048 tokens, where 11,600 suffices). The search starts from
    `min_base`; the result never decreases with length, so `min_base` may be the result for a
    shorter length. Raises ValueError if no base up to 1e10 qualifies.
    """
    if head_dim < 2 or head_dim % 2 or length < 1:
        raise ValueError(f"head_dim={head_dim} must be even and positive, and {length=} positive")
    distance, next_base = torch.arange(length + 1), min_base
    while next_base <= MAX_BASE:
        *bases, next_base = accumulate(repeat(CANDIDATE_RATIO, CHUNK_SIZE), mul, initial=next_base)
        candidates = torch.tensor(bases, dtype=torch.float64)
        for stride in DISTANCE_STRIDES:
            margins = expected_margin(head_dim, candidates, distance[::stride])
            candidates = candidates[margins.amin(-1) >= 0]
        if len(candidates) and candidates[0] <= MAX_BASE:
            return candidates[0].item()
    raise ValueError(f"no base up to {MAX_BASE:.0e} satisfies the bound for length={length}")


def expected_margin(head_dim: int, bases: Tensor, distance: Tensor) -> Tensor:
    """Return B_m [N, M] in float64 for bases [N] and distances m [M]."""
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    frequencies = bases[:, None, None] ** (-2 * pairs / head_dim)
    return (distance.double()[:, None] * frequencies).cos().sum(-1)
