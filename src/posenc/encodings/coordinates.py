"""Validation of positions: one number per token [T], or coordinates [B, T, axes]."""

import torch
from torch import Tensor


def require_1d_positions(pos: Tensor, name: str) -> Tensor:
    """Return the positions [T] unchanged; raises ValueError for coordinates [B, T, axes]."""
    if pos.ndim > 1:
        raise ValueError(
            f"{name} takes one position per token, not coordinates on {pos.shape[-1]} axes;"
            f" choose an encoding that supports coordinates, such as rope or sinusoidal"
        )
    return pos


def to_coordinates(axes: int, pos: Tensor, name: str) -> Tensor:
    """Return float64 coordinates [B or 1, T, axes] for positions [T] or coordinates [B, T, axes].

    A position, or a coordinate on a single axis, is repeated on every axis, as M-RoPE does for text
    (Wang et al. 2024, arXiv:2409.12191). Raises ValueError for any other number of axes.
    """
    points = pos[None, :, None] if pos.ndim == 1 else pos
    if points.shape[-1] not in (1, axes):
        raise ValueError(
            f"{name} takes one position per token or coordinates on {axes} axes, not on"
            f" {points.shape[-1]}; change the encoding's number of axes"
        )
    return points.to(torch.float64).expand(-1, -1, axes)
