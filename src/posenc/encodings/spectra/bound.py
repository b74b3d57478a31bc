"""The smallest base of RoPE for a context length (Men et al. 2024, 2405.14591, eq. 9)."""

import torch
from torch import Tensor

RATIO = 1.0005  # of neighbouring bases that are tried
LARGEST = 1e10
COARSE = 16  # most bases fail at one distance in so many


def smallest_base(head_width: int, length: int, at_least: float = 1.0) -> float:
    """The least base b with B_m = sum_i cos(m b^(-2i/d)) >= 0 at every distance m up to `length`.

    B_m is by how much a key like the query outscores a random one, on average. Larger bases may
    fall below zero again. Bases 0.05 % apart are tried, where the paper's own search is coarser
    (16,000 at d=128 and 2048 tokens; 11,600 will do). The search begins `at_least` where a shorter
    length's ended: no longer one has a smaller answer. ValueError where none up to 1e10 will do.
    """
    if head_width < 2 or head_width % 2 or length < 1:
        raise ValueError(f"head_width={head_width} must be even and length={length} 1 or more")
    distance, base = torch.arange(length + 1), at_least
    while base <= LARGEST:
        tried = (distance[::COARSE], distance)
        if all(advantage(head_width, base, at).min() >= 0 for at in tried):
            return base
        base *= RATIO
    raise ValueError(f"no base up to {LARGEST:.0e} serves length={length}")


def advantage(head_width: int, base: float, distance: Tensor) -> Tensor:
    """B_m [M] at distances [M], in float64."""
    pairs = torch.arange(head_width // 2, dtype=torch.float64)
    angles = distance.double()[:, None] * float(base) ** (-2 * pairs / head_width)
    return angles.cos().sum(-1)
