"""Wall attention: forget gates per channel (Tilde Research 2026, fla-org/flash-linear-attention).

    score(i, j) = sum_c q_ic k_jc exp(P_ic - P_jc) / sqrt(d)
    P_t = sum_{l <= t} ln sigma(W x_l + b)

W [layers, H, d, D] ~ N(0, 0.02^2) and b [layers, H, d] give one gate per head and channel. b is 8
initially, as in fla.layers.wall_attn, so that a token keeps 0.9997 of the past. Gates of 1 give
NoPE. `content_bias` returns score(i, j) - q_i . k_j / sqrt(d). The repository also has a scalar
gate per head (FoX) and an output gate, both off by default; they are not included.

q e^P and k e^-P would overflow. Rows are therefore computed in chunks: for keys before the first
row s of a chunk as (q_i e^(P_i - P_s)) . (k_j e^(P_s - P_j)), in which no exponent is positive, and
for keys within the chunk from P_i - P_j. P is summed in float64.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from posenc.encodings.base import Geometry, PerLayer

CHUNK = 32
"""Rows per chunk; a chunk needs memory for CHUNK x CHUNK x d decays."""


class Wall(PerLayer):
    """One forget gate per token, head and channel."""

    def __init__(self, geometry: Geometry, *, initial_bias: float = 8.0) -> None:
        super().__init__(geometry)
        shape = geometry.layers, geometry.heads, geometry.head_width
        self.weight = nn.Parameter(0.02 * torch.randn(*shape, geometry.width))
        self.offset = nn.Parameter(torch.full(shape, float(initial_bias)))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(dtype), k.to(dtype)
        weight, offset = self.weight[self.layer].to(dtype), self.offset[self.layer]
        logits = (x.to(dtype)[:, None] @ weight.mT).double() + offset[:, None]
        sums = logsigmoid(logits).cumsum(-2)  # [B, H, K, d]
        first = k.shape[2] - q.shape[2]
        rows = [
            chunk_scores(chunk, k, sums, first + CHUNK * index)
            for index, chunk in enumerate(q.split(CHUNK, dim=2))
        ]
        return (torch.cat(rows, dim=2) - q @ k.mT) * self.geometry.head_width**-0.5


def chunk_scores(q: Tensor, k: Tensor, sums: Tensor, start: int) -> Tensor:
    """Return scores [B, H, R, K], before scaling, of the queries of tokens start to start + R - 1.

    The scores of keys after the last query are 0.
    """
    stop = start + q.shape[2]
    own, anchor = sums[:, :, start:stop], sums[:, :, start : start + 1]
    earlier_k = k[:, :, :start] * (anchor - sums[:, :, :start]).to(q.dtype).exp()
    earlier = (q * (own - anchor).to(q.dtype).exp()) @ earlier_k.mT
    decay = (own[:, :, :, None] - own[:, :, None]).clamp(max=0).to(q.dtype).exp()
    within = (q[:, :, :, None] * decay * k[:, :, None, start:stop]).sum(-1)
    later = q.new_zeros(*q.shape[:3], k.shape[2] - stop)
    return torch.cat([earlier, within, later], dim=-1)
