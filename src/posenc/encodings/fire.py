"""FIRE (Li et al. 2024, 2310.04418): a trained function of interpolated distance.

    score_h(i, j) += f_h(psi(i - j) / (psi(max(i, T)) + 1e-6)),   psi(x) = ln(|c x| + 1)

f is a perceptron 1 -> hidden -> H with ReLU; c, from 0.1, and T, from 512 through a multiplier
of 1, are trained. One module, shared by the layers (the paper's FIRE-S, by report).
A bias [H, R, K] of distances [R, K] and positions of the queries [R, 1].
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from posenc.encodings.base import Encoding, Geometry

LARGEST = 1e6  # scale and threshold: their product stays well within float32


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
        if hidden < 1:
            raise ValueError(f"hidden={hidden} must be 1 or more")
        for name, value in (("scale", scale), ("threshold", threshold)):
            if not 0 < value <= LARGEST:
                raise ValueError(f"{name}={value} must be above 0 and at most {LARGEST:.0f}")
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
        heads = head.flatten()
        weight, offset = (p.to(dtype) for p in (self.inner.weight, self.inner.bias))
        hidden = torch.addmm(offset[:, None], weight, relative.reshape(1, -1)).relu_()
        weight, offset = (p.to(dtype)[heads] for p in (self.outer.weight, self.outer.bias))
        out = torch.addmm(offset[:, None], weight, hidden)  # [H, pairs]
        return out.unflatten(1, relative.shape).movedim(0, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c.to(x.dtype) * x).abs())
