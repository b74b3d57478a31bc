"""CARoPE: RoPE with frequencies per head and token (Veisi et al. 2025, arXiv:2507.23083, sec. 2).

    q_i -> R(A_i) q_i,  k_j -> R(A_j) k_j,
    A_t = sum_{l <= t} f(x_l)^p  for pair p,   f(x) = 1 / (softplus(w . x + b) + 1)

With f = base^(-2/d), this is RoPE, which is also the paper's initialization. The paper's formula
has no b; without it, w = 0 would give f = 1/(ln 2 + 1) for any base. Here, w [layers, H, D]
starts at 0 and b at the value for which f is RoPE's; the parameter `offset` [layers, H] is the
difference from this value. In the paper, x is the token's embedding; here, it is the input of the
attention layer. No official implementation is known. q, k [B, H, T, d]; pos is not used.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.rope import Layout, rotate_by_angles


class CaRope(PerLayer):
    """Rotates by sums of powers of a frequency that is computed from each token's content."""

    def __init__(
        self, geometry: Geometry, *, base: float = 10000.0, layout: Layout = "half"
    ) -> None:
        super().__init__(geometry)
        if geometry.head_dim % 2 or geometry.head_dim < 4 or not 1 < base < math.inf:
            raise ValueError(
                f"the head dimension {geometry.head_dim} must be even and at least 4, and"
                f" base={base} must be finite and more than 1"
            )
        self.layout = layout
        shape = (geometry.layers, geometry.heads)
        self.weight = nn.Parameter(torch.zeros(*shape, geometry.width))
        self.offset = nn.Parameter(torch.zeros(shape))
        softplus_b = math.expm1(2 / geometry.head_dim * math.log(base))  # 1/f - 1
        self.initial_offset = softplus_b + math.log(-math.expm1(-softplus_b))

    def rotate(self, x: Tensor, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        return rotate_by_angles(q, k, self.angles(x)[..., None, :], self.layout)

    def angles(self, x: Tensor) -> Tensor:
        """Return A [B, H, T, d/2] in float64, which autocast does not downcast."""
        weight, offset = self.weight[self.layer].double(), self.offset[self.layer].double()
        logits = weight @ x.double().mT + offset[:, None] + self.initial_offset  # [B, H, T]
        log_frequency = -softplus(logits).log1p()
        powers = torch.arange(self.geometry.head_dim // 2, device=x.device)
        return (log_frequency[..., None] * powers).exp().cumsum(-2)
