"""PaTH: Householder-like transformations along the path from key to query (Yang et al. 2025).

    score(i, j) = q_i^T H_i H_(i-1) .. H_(j+1) k_j / sqrt(d),   H_t = I - beta_t w_t w_t^T
    w_t = n(silu(conv(W2 W1 x)_t)),   beta_t = 2 sigma(w_b . x_t + b),   n(w) = w / |w|

From arXiv:2505.16381 and fla-org/flash-linear-attention (layers/path_attn.py): conv is causal,
depthwise and 3 tokens wide; per layer, W1 is [rank, D], W2 [H d, rank], the convolution [H d, 3]
and w_b [H, D], all N(0, 0.02^2), and b is initially 0. PaTH-FoX also adds (F_i - F_j) / sqrt(d),
with sums F_t of ln sigma(w_g . x_l + b_g) over l <= t; flash-linear-attention divides them by
sqrt(d) here, but not in FoX. `content_bias` returns score(i, j) - q_i . k_j / sqrt(d).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, pad, silu

from posenc.encodings.base import Geometry, PerLayer
from posenc.encodings.fox import Fox, per_head_weight, project

CHUNK_SIZE = 64
EPSILON = 1e-6


class Path(PerLayer):
    """One transformation per token and head; with `forget_gate`, FoX's gates as well."""

    def __init__(
        self,
        geometry: Geometry,
        *,
        rank: int = 32,
        conv_width: int = 3,
        forget_gate: bool = False,
    ) -> None:
        super().__init__(geometry)
        if rank < 1 or conv_width < 1:
            raise ValueError(f"rank={rank} and conv_width={conv_width} must be at least 1")
        layers, heads, width = geometry.layers, geometry.heads, geometry.width
        self.down = nn.Parameter(0.02 * torch.randn(layers, rank, width))
        self.up = nn.Parameter(0.02 * torch.randn(layers, width, rank))
        self.kernel = nn.Parameter(0.02 * torch.randn(layers, width, conv_width))
        self.weight = per_head_weight(geometry)
        self.offset = nn.Parameter(torch.zeros(layers, heads))
        self.gates = Fox(geometry) if forget_gate else None

    def content_lookback(self) -> int:
        return self.kernel.shape[-1] - 1

    def content_bias(
        self, x: Tensor, q: Tensor, k: Tensor, distance: Tensor, pos_q: Tensor
    ) -> Tensor:
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(dtype), k.to(dtype)
        w, betas = self.directions(x).to(dtype), self.betas(x).to(dtype)
        bias = path_products(q, k, w, betas * w) - q @ k.mT
        if self.gates is not None:
            gates = self.gates.at_layer(self.layer)
            bias = bias + gates.content_bias(x, q, k, distance, pos_q)
        return bias * self.geometry.head_dim**-0.5

    def directions(self, x: Tensor) -> Tensor:
        """Return w [B, H, T, d] of unit length."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        down, up, kernel = (p[self.layer].to(dtype) for p in (self.down, self.up, self.kernel))
        states = pad(up @ (down @ x.to(dtype).mT), (kernel.shape[-1] - 1, 0))
        w = silu(conv1d(states, kernel[:, None], groups=len(kernel)))  # [B, D, T]
        w = w.unflatten(1, (self.geometry.heads, -1)).mT
        return w * (w.square().sum(-1, keepdim=True) + EPSILON).rsqrt()

    def betas(self, x: Tensor) -> Tensor:
        """Return beta [B, H, T, 1], between 0 and 2."""
        logits = project(x, self.weight[self.layer]) + self.offset[self.layer][:, None, None]
        return 2 * logits.sigmoid()


def path_products(q: Tensor, k: Tensor, w: Tensor, w_beta: Tensor) -> Tensor:
    """Return q_i^T H_i .. H_(j+1) k_j [B, H, R, K] for H_t = I - w_t w_beta_t^T; 0 for later keys.

    q [B, H, R, d] are the queries of the last R of K tokens. Chunks of keys are processed from the
    last to the first, and q is multiplied by the transformations of every chunk (appendix A of the
    paper: their product within a chunk is I - W^T (I + tril(W_beta W^T, -1))^-1 W_beta).
    """
    rows, keys = q.shape[2], k.shape[2]
    query = torch.arange(keys - rows, keys, device=q.device)[:, None]
    scores = []
    for start in reversed(range(0, keys, CHUNK_SIZE)):
        chunk = slice(start, min(start + CHUNK_SIZE, keys))
        later = torch.arange(chunk.start, chunk.stop, device=q.device) > query
        chunk_k, chunk_w, chunk_w_beta = k[:, :, chunk], w[:, :, chunk], w_beta[:, :, chunk]
        weights = torch.linalg.solve_triangular(
            (chunk_w_beta @ chunk_w.mT).tril(-1),
            (q @ chunk_w.mT).masked_fill(later, 0),
            upper=False,
            left=False,
            unitriangular=True,
        )
        local = (q @ chunk_k.mT).masked_fill(later, 0)
        scores.append(local - weights @ (chunk_w_beta @ chunk_k.mT).tril(-1))
        q = q - weights @ chunk_w_beta
    return torch.cat(scores[::-1], dim=-1)
