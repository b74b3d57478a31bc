"""The smallest RoPE base for a context length (Men et al. 2024, 2405.14591, eq. 9)."""

import torch
from torch import Tensor

RATIO = 1.0005  # between consecutive candidates
LARGEST = 1e10
COARSE = 16  # most bases already fail at one of every 16 distances


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
    distance, base = torch.arange(length + 1), at_least
    while base <= LARGEST:
        subsets = (distance[::COARSE], distance)
        if all(advantage(head_width, base, subset).min() >= 0 for subset in subsets):
            return base
        base *= RATIO
    raise ValueError(f"no base up to {LARGEST:.0e} satisfies the bound for length={length}")


def advantage(head_width: int, base: float, distance: Tensor) -> Tensor:
    """Return B_m [M] for distances m [M], in float64."""
    pairs = torch.arange(head_width // 2, dtype=torch.float64)
    angles = distance.double()[:, None] * float(base) ** (-2 * pairs / head_width)
    return angles.cos().sum(-1)
