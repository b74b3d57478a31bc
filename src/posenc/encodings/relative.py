"""Scores of queries with a vector for each distance, without one for each pair of tokens."""

from collections.abc import Callable

import torch
from torch import Tensor


def scores_with(q: Tensor, distance: Tensor, vectors: Callable[[Tensor], Tensor]) -> Tensor:
    """q_i . vector(i - j) [B, H, R, K] for queries [B, H, R, d], in the precision of distances.

    `vectors` gives [U, d], or [H, U, d], of the U different distances, from 0: what lies ahead
    counts as 0. R and K may be thousands and U is then about K, so that no [R, K, d] is made.
    """
    values, where = numbered(distance.clamp(min=0))
    return pick(q.to(distance.dtype) @ vectors(values).mT, where)


def numbered(distance: Tensor) -> tuple[Tensor, Tensor]:
    """Values [U] that hold all distances, and the number of each distance's value among them.

    Whole numbers close together, a sequence's, number themselves; others have to be sorted.
    """
    where = distance.long()
    count = int(where.max()) + 1
    if count <= 2 * sum(distance.shape[-2:]) and torch.equal(where.to(distance.dtype), distance):
        return torch.arange(count, device=distance.device).to(distance.dtype), where
    return distance.unique(return_inverse=True)


def pick(scores: Tensor, where: Tensor) -> Tensor:
    """The scores [B, H, R, U] in the places `where` ([R, K] or [B, 1, R, K]): [B, H, R, K]."""
    return scores.gather(-1, where.expand(*scores.shape[:-1], -1))
