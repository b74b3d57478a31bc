"""Inkling's relative bias, computed from queries (Thinking Machines 2026, modeling_inkling.py).

    score_h(i, j) = tau_i (q_i . k_j / sqrt(d) + r_hi . P[:, i - j]),   P[:, n] = 0 for n >= E
    r_hi = W_h x_i,   tau_i = 1 + alpha ln max(1, (i + 1) / n0)

Every layer has its own W [H, r, D] and P [r, E], both initialized from N(0, 0.02^2); the heads
share P. Every `every`-th layer is global: E is `extent`, and tau is as above. The others have a
window of E = `size` tokens, and tau = 1. Nothing is rotated, so beyond E, tau is a global layer's
only positional signal. i is the position of the query. Unlike in the authors' code, the last layer
is always global; their model has 66 layers, a multiple of 6.

The authors' model divides q . k by d, after normalizing q and k, and has causal convolutions over
keys and values; both are properties of the model and not included. In the authors' code, tau is 1
in all layers if n0 is not set.
"""

import torch
from torch import Tensor, nn

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.coordinates import require_1d_positions
from posenc.encodings.temperature import log_temperature


class Inkling(PerLayer):
    """Learned functions of distance, weighted by each query; global layers have a temperature."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        d_rel: int = 16,
        extent: int = 256,
        size: int = 128,
        every: int = 6,
        alpha: float = 0.1,
        n_floor: int | None = None,
    ) -> None:
        super().__init__(geometry)
        for name, value in {"d_rel": d_rel, "extent": extent, "size": size, "every": every}.items():
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        self.n_floor = geometry.train_length if n_floor is None else n_floor
        if self.n_floor < 1 or alpha < 0:
            raise ValueError(f"n_floor={n_floor} must be positive and alpha={alpha} non-negative")
        self.size, self.every, self.alpha = size, every, alpha
        self.weight = nn.Parameter(
            0.02 * torch.randn(geometry.layers, geometry.heads, d_rel, geometry.width)
        )
        extents = [extent if self.is_global(i) else size for i in range(geometry.layers)]
        self.curves = nn.ParameterList(0.02 * torch.randn(d_rel, extent) for extent in extents)
        if alpha > 0:
            self.limitations = {
                "shift_invariant": "the temperature depends on the position of the query"
            }

    def is_global(self, index: int) -> bool:
        return (index + 1) % self.every == 0 or index == self.geometry.layers - 1

    def window(self) -> int | None:
        return None if self.is_global(self.layer) else self.size

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        tau = self.temperature(require_1d_positions(pos, "inkling"))
        return (q * tau[:, None]).to(q.dtype), k

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        query_states = x[:, None, -q.shape[-2] :].to(dtype)  # [B, 1, R, D]
        curves = self.curves[self.layer].to(dtype)
        biases = query_states @ self.weight[self.layer].to(dtype).mT @ curves  # [B, H, R, E]
        index = distance.clamp(0, curves.shape[-1] - 1).long().expand(*biases.shape[:2], -1, -1)
        outside = (distance < 0) | (distance >= curves.shape[-1])
        tau = self.temperature(pos_q).to(dtype)
        return tau * biases.gather(-1, index).masked_fill(outside, 0.0)

    def temperature(self, pos: Tensor) -> Tensor:
        """Return tau in float64, which is 1 in layers that are not global."""
        if not self.is_global(self.layer):
            return torch.ones_like(pos, dtype=torch.float64)
        return log_temperature(pos.double() + 1, self.n_floor, self.alpha)
