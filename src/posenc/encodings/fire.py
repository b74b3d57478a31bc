"""FIRE (Li et al. 2024, 2310.04418): a trained function of interpolated distance.

    score_h(i, j) += f_h(psi(i - j) / (psi(max(i, T)) + 1e-6)),   psi(x) = ln(|c x| + 1)

f is a perceptron 1 -> hidden -> H with ReLU; c, from 0.1, and T, from 512 through a multiplier
of 1, are trained. One module, shared by the layers (the paper's FIRE-S, by report).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry


class Fire(Encoding):
    """Distance relative to the query's position, past a trained threshold, through a perceptron."""

    exceptions: Mapping[str, str] = {
        "shift": "distance is divided by a function of the query's position"
    }

    def __init__(
        self,
        geometry: Geometry,
        *,
        hidden: int = 32,
        scale: float = 0.1,
        threshold: float = 512.0,
    ) -> None:
        super().__init__(geometry)
        self.c = nn.Parameter(torch.tensor(float(scale)))
        self.threshold = float(threshold)
        self.multiplier = nn.Parameter(torch.tensor(1.0))
        self.inner = nn.Linear(1, hidden)
        self.outer = nn.Linear(hidden, geometry.heads)

    def bias(self, head: Tensor, distance: Tensor, pos_q: Tensor) -> Tensor:
        dtype = distance.dtype
        threshold = (self.multiplier.to(dtype) * self.threshold).abs()
        normaliser = self._psi(torch.maximum(pos_q.to(dtype), threshold)) + 1e-6
        relative = self._psi(distance.clamp(min=0)) / normaliser  # [R, K] or [B, 1, R, K]
        if relative.ndim > 2:
            relative = relative.squeeze(1)
        weight, offset = (p.to(dtype) for p in (self.inner.weight[:, 0], self.inner.bias))
        hidden = (relative[..., None] * weight + offset).relu()
        out = hidden @ self.outer.weight.to(dtype).mT + self.outer.bias.to(dtype)  # [..., R, K, H]
        return out.movedim(-1, -3)[..., head.flatten(), :, :]

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c.to(x.dtype) * x).abs())
