"""Cosine and sine of position x frequency, formed in float64: float32 is off by 1e-3 at 100,000."""

import torch
from torch import Tensor


def cos_sin(
    pos: Tensor, frequencies: Tensor, magnitude: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosine and sine [T, n] of pos [T] times frequencies [n], cast to `dtype` only then."""
    angles = pos.to(torch.float64)[:, None] * frequencies.to(pos.device)
    return (magnitude * angles.cos()).to(dtype), (magnitude * angles.sin()).to(dtype)
