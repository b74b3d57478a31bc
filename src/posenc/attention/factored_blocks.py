"""Causal attention with a bias of low rank, accurate at any length and positions.

The bias of query i and key j is Q_i . (K_j - K_i). For FoX, K is a sum over all tokens so far, and
the difference of two such sums would lose precision in float32. The scores are therefore computed
in parts without cancellation:

- Triangles on the diagonal, 64 rows and 64 keys each. Their bias is formed in float64.
- Rectangles below them, whose keys all precede their first row s. The bias is the sum of
  Q_i . (K_j - K_s) and Q_i . (K_s - K_i). If it falls with distance, neither term is above 0, and
  rounding errors are large only for keys without weight in the softmax. The second term is the
  same for all keys of a query and is added to the logsumexp of the rectangle's scores.

The outputs of the parts are merged by their logsumexp.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention import fused_sdpa
from posenc.attention.factored_gradients import FactorGradients, tiles, untile
from posenc.attention.fused_sdpa import QueryBlock
from posenc.attention.reference import score_dtype

TRIANGLE = 64
BLOCK = 4 * TRIANGLE
MARGIN = {torch.float32: 20.0, torch.float64: 40.0}
"""Weights below exp(-MARGIN), for all keys together, are rounded to 0."""
NO_WEIGHT = -1e4
"""A bias whose weight is exactly 0 and not subnormal, which would be slow on many CPUs."""


def low_rank_attention(
    q: Tensor, k: Tensor, v: Tensor, query_factors: Tensor | None, key_factors: Tensor
) -> Tensor:
    """Return causal attention of q and k [B, H, T, d'] and v [B, H, T, d] with a low-rank bias.

    The factors are [B, H, T, r] in float64; `query_factors` of None means ones, with r = 1.
    """
    length, width = v.shape[2:]
    rows = -length % TRIANGLE  # of zeros at the end, which no other row sees
    q, k = pad(q, (0, 0, 0, rows)), pad(k, (0, 0, 0, rows))
    values = pad(v, (0, q.shape[-1] - width, 0, rows))
    key_factors = pad(key_factors, (0, 0, 0, rows))
    if query_factors is not None:
        query_factors = pad(query_factors, (0, 0, 0, rows))
    out = LowRankAttention.apply(q, k, values, query_factors, key_factors, width**-0.5)
    return out[:, :, :length, :width]


class LowRankAttention(torch.autograd.Function):
    """Attention of q, k, v [B, H, T, d'], for T a multiple of TRIANGLE."""

    @staticmethod
    def forward(ctx, q, k, v, query_factors, key_factors, scale):  # type: ignore[no-untyped-def]
        threshold = weight_threshold(q, k, scale)
        dtype, heads = threshold.dtype, q.shape[1]
        out, lse = torch.empty_like(q, dtype=dtype), q.new_empty(q.shape[:3], dtype=dtype)
        for block in row_blocks(q.shape[2]):
            bias = triangle_bias(query_factors, key_factors, block, dtype)
            tile_q, tile_k, tile_v = (tiles(tensor, block, TRIANGLE) for tensor in (q, k, v))
            part_out, part_lse = fused_sdpa.forward(tile_q, tile_k, tile_v, bias, scale)
            out[:, :, block], lse[:, :, block] = untile(part_out, heads), untile(part_lse, heads)
            for rows, keys in rectangles(block):
                bias, constant = rectangle_bias(query_factors, key_factors, rows, keys, threshold)
                part_out, part_lse = fused_sdpa.forward(
                    q[:, :, rows], k[:, :, keys], v[:, :, keys], bias, scale
                )
                merge(out[:, :, rows], lse[:, :, rows], part_out, part_lse + constant)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, query_factors, key_factors, out, lse, threshold)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad_out):  # type: ignore[no-untyped-def]
        backward = BackwardPass(ctx, grad_out)
        for block in row_blocks(grad_out.shape[2]):
            backward.add_triangles(block)
            for rows, keys in rectangles(block):
                backward.add_rectangle(rows, keys)
        factors = backward.factors
        grad_factors = (factors.grad_query, factors.grad_key()) if factors else (None, None)
        return *backward.grad_qkv(), *grad_factors, None


class BackwardPass:
    """Sums the gradients of q, k, v and, if they are learnable, of the factors."""

    def __init__(self, ctx, grad_out: Tensor) -> None:  # type: ignore[no-untyped-def]
        self.q, self.k, self.v, self.query_factors, self.key_factors, *rest = ctx.saved_tensors
        self.out, self.lse, self.threshold = rest
        self.grad_out, self.scale = grad_out, ctx.scale
        self.grad_q, self.grad_k, self.grad_v = (
            torch.zeros_like(tensor, dtype=self.lse.dtype) for tensor in (self.q, self.k, self.v)
        )
        self.factors = None
        self.wide_v, self.wide_out, self.wide_grad_out = self.v, self.out, grad_out
        if any(ctx.needs_input_grad[3:5]):
            factors = FactorGradients(
                self.query_factors, self.key_factors, self.q, self.k, ctx.scale
            )
            self.wide_v, self.wide_out, self.wide_grad_out = (
                factors.widen(tensor) for tensor in (self.v, self.out, grad_out)
            )
            self.factors = factors

    def grad_qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of q, k and v, in their precision."""
        dtype = self.q.dtype
        return self.grad_q.to(dtype), self.grad_k.to(dtype), self.grad_v.to(dtype)

    def add_triangles(self, block: slice) -> None:
        """Add the triangles on the diagonal of a block of rows."""
        bias = triangle_bias(self.query_factors, self.key_factors, block, self.lse.dtype)
        q, k, v, out, grad_out, lse = (
            tiles(tensor, block, TRIANGLE)
            for tensor in (self.q, self.k, self.v, self.out, self.grad_out, self.lse)
        )
        grad_k, grad_v = torch.zeros_like(k, dtype=lse.dtype), torch.zeros_like(v, dtype=lse.dtype)
        grad_q, grad_bias = fused_sdpa.backward_with_bias(
            QueryBlock(q, out, grad_out, lse), k, v, bias, self.scale, grad_k, grad_v
        )
        heads = self.q.shape[1]
        self.grad_q[:, :, block] += untile(grad_q, heads)
        self.grad_k[:, :, block] += untile(grad_k, heads)
        self.grad_v[:, :, block] += untile(grad_v, heads)
        if self.factors:
            self.factors.add_triangles(block, grad_bias)

    def add_rectangle(self, rows: slice, keys: slice) -> None:
        """Add a rectangle below the diagonal."""
        bias, constant = rectangle_bias(
            self.query_factors, self.key_factors, rows, keys, self.threshold
        )
        q, k = self.q[:, :, rows], self.k[:, :, keys]
        if self.factors:
            q, k = self.factors.columns(rows, keys)
        v, out = self.wide_v[:, :, keys], self.wide_out[:, :, rows]
        grad_out, lse = self.wide_grad_out[:, :, rows], self.lse[:, :, rows] - constant
        grad_q, grad_k, grad_v = fused_sdpa.backward(
            QueryBlock(q, out, grad_out, lse), k, v, bias, self.scale
        )
        width = self.q.shape[-1]
        self.grad_q[:, :, rows] += grad_q[..., :width]
        self.grad_k[:, :, keys] += grad_k[..., :width]
        self.grad_v[:, :, keys] += grad_v[..., :width]
        if self.factors:
            self.factors.add_rectangle(rows, keys, grad_q, grad_k)


def row_blocks(length: int) -> Iterator[slice]:
    """Yield blocks of BLOCK rows; the last may be shorter."""
    for start in range(0, length, BLOCK):
        yield slice(start, min(start + BLOCK, length))


def rectangles(block: slice) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and keys of the rectangles that complete the triangles of a block."""
    if block.start:
        yield block, slice(0, block.start)
    for start in range(block.start + TRIANGLE, block.stop, TRIANGLE):
        yield slice(start, start + TRIANGLE), slice(block.start, start)


def triangle_bias(
    query_factors: Tensor | None, key_factors: Tensor, block: slice, dtype: torch.dtype
) -> Tensor:
    """Return the bias [B, H * n, 64, 64] of the triangles of a block, -inf above the diagonal."""
    key = tiles(key_factors, block, TRIANGLE)
    key = key - key[:, :, :1]
    if query_factors is None:
        bias = key.mT - key
    else:
        query = tiles(query_factors, block, TRIANGLE)
        bias = query @ key.mT - (query * key).sum(-1, keepdim=True)
    later = torch.ones(TRIANGLE, TRIANGLE, dtype=torch.bool, device=bias.device).triu(1)
    return bias.to(dtype).masked_fill_(later, -torch.inf)


def rectangle_bias(
    query_factors: Tensor | None,
    key_factors: Tensor,
    rows: slice,
    keys: slice,
    threshold: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the bias [B, H, R, K] relative to the first row, and the rest [B, H, R] of each query.

    Without query factors the bias is the same for all rows, and keys below the threshold get no
    weight.
    """
    dtype, first = threshold.dtype, key_factors[:, :, rows.start, None]
    relative = (key_factors[:, :, keys] - first).to(dtype)
    constant = first - key_factors[:, :, rows]
    if query_factors is None:
        constant = constant[..., 0].to(dtype)
        constant = constant.masked_fill(constant < threshold, NO_WEIGHT)
        bias = relative.mT.masked_fill(relative.mT < threshold[..., None], NO_WEIGHT)
        return bias.expand(-1, -1, constant.shape[-1], -1), constant
    query = query_factors[:, :, rows]
    return query.to(dtype) @ relative.mT, (query * constant).sum(-1).to(dtype)


def weight_threshold(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return the bias [B, H, 1] below which a key cannot have a weight, whatever its score.

    As |q . k| <= |q| |k|, the weight is then less than exp(-MARGIN) / T of that of the query's own
    key, whose bias is 0 (the pruning threshold of Lin et al. 2025, 2504.06949).
    """
    dtype = score_dtype(q.dtype)
    q_norm, k_norm = (tensor.norm(dim=-1, dtype=dtype).amax(-1) for tensor in (q, k))
    return -(2 * scale * q_norm * k_norm + math.log(q.shape[2]) + MARGIN[dtype])[..., None]


def merge(out: Tensor, lse: Tensor, part_out: Tensor, part_lse: Tensor) -> None:
    """Combine the attention over two sets of keys, in place in the first two tensors."""
    total = torch.logaddexp(lse, part_lse)
    out.mul_((lse - total).exp_()[..., None])
    out.add_(part_out.mul_((part_lse - total).exp_()[..., None]))
    lse.copy_(total)
