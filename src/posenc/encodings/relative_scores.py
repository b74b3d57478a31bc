"""Scores of queries against a vector per distance, without storing a vector per pair of tokens."""

from collections.abc import Callable

import torch
from torch import Tensor


def relative_scores(q: Tensor, distance: Tensor, vectors: Callable[[Tensor], Tensor]) -> Tensor:
    """Return q_i . vector(i - j) [B, H, R, K] for q [B, H, R, d], with the dtype of `distance`.

    `vectors` maps the U distinct distances to [U, d] or [H, U, d]; keys after the query get
    distance 0. In a sequence U is at most K, so that no [R, K, d] tensor is needed.
    """
    values, index = unique_distances(distance.clamp(min=0))
    return gather_scores(q.to(distance.dtype) @ vectors(values).mT, index)


def unique_distances(distance: Tensor) -> tuple[Tensor, Tensor]:
    """Return values [U] that include every distance, and the index of each distance in them.

    Dense integers, as in a sequence, are their own indices; other distances have to be sorted.
    """
    index = distance.long()
    count = int(index.max()) + 1
    if count <= 2 * sum(distance.shape[-2:]) and torch.equal(index.to(distance.dtype), distance):
        return torch.arange(count, device=distance.device).to(distance.dtype), index
    return distance.unique(return_inverse=True)


def gather_scores(scores: Tensor, index: Tensor) -> Tensor:
    """Gather scores [B, H, R, U] at `index`, [R, K] or [B, 1, R, K]; returns [B, H, R, K]."""
    return scores.gather(-1, index.expand(*scores.shape[:-1], -1))
