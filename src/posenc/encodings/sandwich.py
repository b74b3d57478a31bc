"""Sandwich (Chi et al. 2023, arXiv:2212.10356): inner products of sinusoidal embeddings as a bias.

    score_h(i, j) += (1 / r_h) (sum_{k=1}^{w/2} cos((i - j) base^(-2k/w)) - w/2),   r_h = 8h / H

Subtracting w/2 makes the bias 0 at distance 0 and does not change the softmax. The values of r_h
and w (`bias_width`, 128 by default) follow NVIDIA NeMo's implementation. The bias is [H, R, K] for
distances [R, K].
"""

import torch
from torch import Tensor

from posenc.encodings.base import Encoding, Factors, Geometry


class Sandwich(Encoding):
    """A penalty that grows roughly logarithmically with distance, more slowly in later heads."""

    def __init__(self, geometry: Geometry, *, bias_width: int = 128, base: float = 10000.0) -> None:
        super().__init__(geometry)
        if bias_width < 2 or bias_width % 2 or base <= 0:
            raise ValueError(
                f"bias_width={bias_width} must be even and at least 2, and base={base} must be"
                f" positive"
            )
        pairs = torch.arange(1, bias_width // 2 + 1, dtype=torch.float64)
        self.frequencies = float(base) ** (-2 * pairs / bias_width)
        heads = torch.arange(1, geometry.heads + 1, dtype=torch.float64)
        self.scales = geometry.heads / (8 * heads)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        total = torch.zeros_like(distance, dtype=torch.float64)
        for frequency in self.frequencies.tolist():
            total += (distance.double() * frequency).cos() - 1
        return (self.scales.to(distance.device)[head] * total).to(distance.dtype)

    def bias_factors(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> Factors | None:
        if pos.ndim > 1:  # the distance between coordinates does not factorize
            return None
        # Without w/2, which does not change the softmax.
        angles = pos.double()[:, None] * self.frequencies.to(x.device)
        sinusoids = torch.cat([angles.cos(), angles.sin()], dim=-1)  # [T, bias_width]
        queries = self.scales.to(x.device)[:, None, None] * sinusoids
        return queries[None], sinusoids.expand_as(queries)[None]
