"""Scores of queries with one vector per distance, without forming a vector per pair of tokens."""

from collections.abc import Callable

import torch
from torch import Tensor


def relative_scores(q: Tensor, distance: Tensor, vectors: Callable[[Tensor], Tensor]) -> Tensor:
    """Return q_i . vector(i - j) [B, H, R, K] for q [B, H, R, d], in the precision of `distance`.

    `vectors` maps the U distinct distances to [U, d] or [H, U, d]; keys after the query count as
    distance 0. With thousands of rows and keys U is about K, so no [R, K, d] tensor is formed.
    """
    values, index = unique_distances(distance.clamp(min=0))
    return gather_scores(q.to(distance.dtype) @ vectors(values).mT, index)


def unique_distances(distance: Tensor) -> tuple[Tensor, Tensor]:
    """Return values [U] that include every distance, and each distance's index among them.

    Dense integers, as in a sequence, are their own indices; other distances have to be sorted.
    """
    index = distance.long()
    count = int(index.max()) + 1
    if count <= 2 * sum(distance.shape[-2:]) and torch.equal(index.to(distance.dtype), distance):
        return torch.arange(count, device=distance.device).to(distance.dtype), index
    return distance.unique(return_inverse=True)


def gather_scores(scores: Tensor, index: Tensor) -> Tensor:
    """Return scores [B, H, R, U] gathered at `index` ([R, K] or [B, 1, R, K]): [B, H, R, K]."""
    return scores.gather(-1, index.expand(*scores.shape[:-1], -1))
