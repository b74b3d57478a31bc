"""Wall attention: forget gates per channel (Tilde Research 2026, fla-org/flash-linear-attention).

    score(i, j) = sum_c q_ic k_jc exp(P_ic - P_jc) / sqrt(d)
    P_t = sum_{l <= t} ln sigma(W x_l + b)

W [layers, H, d, D] ~ N(0, 0.02^2) and b [layers, H, d] give one gate per head and channel. b is 8
initially, as in fla.layers.wall_attn, so that a token keeps 0.9997 of the past. Gates of 1 give
NoPE. `content_bias` returns score(i, j) - q_i . k_j / sqrt(d). The repository also has a scalar
gate per head (FoX) and an output gate, both off by default; they are not included.

q e^P would underflow, and k e^-P would overflow. If the keys precede token s and the queries do
not, their scores are therefore computed as (q_i e^(P_i - P_s)) . (k_j e^(P_s - P_j)), in which no
exponent is positive. The diagonal block, in which queries and keys are the same tokens, is split
recursively into blocks of at most MAX_DIRECT_TOKENS tokens, in which the decay of each pair is
computed. P is summed in float64.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from posenc.encodings.base import Geometry, PerLayer

MAX_DIRECT_TOKENS = 8
"""The maximum number of tokens in a block in which the decay of each pair is computed."""


class Wall(PerLayer):
    """One forget gate per token, head and channel."""

    def __init__(self, geometry: Geometry, *, initial_bias: float = 8.0) -> None:
        super().__init__(geometry)
        shape = geometry.layers, geometry.heads, geometry.head_dim
        self.weight = nn.Parameter(0.02 * torch.randn(*shape, geometry.width))
        self.gate_bias = nn.Parameter(torch.full(shape, float(initial_bias)))

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(dtype), k.to(dtype)
        weight, gate_bias = self.weight[self.layer].to(dtype), self.gate_bias[self.layer]
        logits = (x.to(dtype)[:, None] @ weight.mT).double() + gate_bias[:, None]
        log_decay = logsigmoid(logits).cumsum(-2)  # [B, H, K, d]
        start = k.shape[2] - q.shape[2]  # the index of the first query
        earlier = decayed_scores(
            q, k[:, :, :start], log_decay[:, :, start:], log_decay[:, :, :start]
        )
        diagonal = causal_decayed_scores(q, k[:, :, start:], log_decay[:, :, start:])
        return (torch.cat([earlier, diagonal], dim=-1) - q @ k.mT) * self.geometry.head_dim**-0.5


def causal_decayed_scores(q: Tensor, k: Tensor, log_decay: Tensor) -> Tensor:
    """Return sum_c q_ic k_jc exp(P_ic - P_jc) [..., T, T] over T tokens, and 0 for j > i."""
    length = q.shape[-2]
    if length <= MAX_DIRECT_TOKENS:
        decay = (
            (log_decay[..., :, None, :] - log_decay[..., None, :, :]).clamp(max=0).to(q.dtype).exp()
        )
        return (q[..., :, None, :] * decay * k[..., None, :, :]).sum(-1).tril()
    if length % 2:
        q, k, log_decay = (
            torch.cat([part, part[..., -1:, :]], dim=-2) for part in (q, k, log_decay)
        )
    q, k, log_decay = (part.unflatten(-2, (2, -1)) for part in (q, k, log_decay))
    first, second = causal_decayed_scores(q, k, log_decay).unbind(-3)
    below = decayed_scores(
        q[..., 1, :, :], k[..., 0, :, :], log_decay[..., 1, :, :], log_decay[..., 0, :, :]
    )
    above = torch.zeros_like(below)
    halves = torch.cat([first, above], dim=-1), torch.cat([below, second], dim=-1)
    return torch.cat(halves, dim=-2)[..., :length, :length]


def decayed_scores(q: Tensor, k: Tensor, log_decay_q: Tensor, log_decay_k: Tensor) -> Tensor:
    """Return sum_c q_ic k_jc exp(P_ic - P_jc) [..., R, K] for keys before the first query."""
    start = log_decay_q[..., :1, :]
    decayed_q = q * (log_decay_q - start).to(q.dtype).exp()
    return decayed_q @ (k * (start - log_decay_k).to(k.dtype).exp()).mT
