"""Causal attention with a low-rank bias, accurate at any length and any positions.

The bias of query i and key j is Q_i . (K_j - K_i). For FoX, K is a sum over all tokens so far, and
the difference of two such sums would lose precision in float32. The scores are therefore computed
in parts that avoid this cancellation:

- Triangles on the diagonal have 64 rows and 64 keys each. Their bias is computed in float64.
- Rectangles below the diagonal have only keys that precede their first row s. Their bias is the sum
  of Q_i . (K_j - K_s) and Q_i . (K_s - K_i). If the bias decreases with distance, neither term is
  positive, and rounding errors are large only for keys that have no weight in the softmax. The
  second term is the same for all keys of a query; it is added to the logsumexp of the scores.

The outputs of the parts are combined according to the logsumexp of their scores.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention import fused_sdpa
from posenc.attention.factored_gradients import FactorGradients, from_tiles, to_tiles
from posenc.attention.fused_sdpa import QueryBlock
from posenc.attention.reference import score_dtype

TRIANGLE_ROWS = 64
BLOCK_ROWS = 4 * TRIANGLE_ROWS
MARGIN = {torch.float32: 20.0, torch.float64: 40.0}
"""The combined weight of all keys that are ignored is below exp(-MARGIN)."""
MASKED_BIAS = -1e4
"""A bias that makes the weight exactly 0; subnormal weights would be slow on many CPUs."""


def low_rank_attention(
    q: Tensor, k: Tensor, v: Tensor, query_factors: Tensor | None, key_factors: Tensor
) -> Tensor:
    """Return causal attention of q and k [B, H, T, d'] and v [B, H, T, d] with a low-rank bias.

    The factors are [B, H, T, r] in float64. If `query_factors` is None, they are ones and r is 1.
    """
    length, width = v.shape[2:]
    padding = -length % TRIANGLE_ROWS  # rows of zeros at the end, which no token attends to
    q, k = pad(q, (0, 0, 0, padding)), pad(k, (0, 0, 0, padding))
    values = pad(v, (0, q.shape[-1] - width, 0, padding))
    key_factors = pad(key_factors, (0, 0, 0, padding))
    if query_factors is not None:
        query_factors = pad(query_factors, (0, 0, 0, padding))
    out = LowRankAttention.apply(q, k, values, query_factors, key_factors, width**-0.5)
    return out[:, :, :length, :width]


class LowRankAttention(torch.autograd.Function):
    """Attention of q, k, v [B, H, T, d'], where T is a multiple of TRIANGLE_ROWS."""

    @staticmethod
    def forward(ctx, q, k, v, query_factors, key_factors, scale):  # type: ignore[no-untyped-def]
        threshold = weight_threshold(q, k, scale)
        dtype, heads = threshold.dtype, q.shape[1]
        out, lse = torch.empty_like(q, dtype=dtype), q.new_empty(q.shape[:3], dtype=dtype)
        for block in row_blocks(q.shape[2]):
            bias = triangle_bias(query_factors, key_factors, block, dtype)
            tile_q, tile_k, tile_v = (
                to_tiles(tensor, block, TRIANGLE_ROWS) for tensor in (q, k, v)
            )
            tile_out, tile_lse = fused_sdpa.forward(tile_q, tile_k, tile_v, bias, scale)
            out[:, :, block] = from_tiles(tile_out, heads)
            lse[:, :, block] = from_tiles(tile_lse, heads)
            for rows, keys in rectangles(block):
                bias, constant = rectangle_bias(query_factors, key_factors, rows, keys, threshold)
                part_out, part_lse = fused_sdpa.forward(
                    q[:, :, rows], k[:, :, keys], v[:, :, keys], bias, scale
                )
                fused_sdpa.merge_outputs(
                    out[:, :, rows], lse[:, :, rows], part_out, part_lse + constant
                )
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
        gradients = backward.grad_q, backward.grad_k, backward.grad_v
        grad_qkv = (gradient.to(backward.q.dtype) for gradient in gradients)
        if backward.factor_gradients is None:
            return *grad_qkv, None, None, None
        return (
            *grad_qkv,
            backward.factor_gradients.grad_query_factors,
            backward.factor_gradients.crossing_sums.diff(dim=2),
            None,
        )


class BackwardPass:
    """Sums the gradients of q, k, v and, if needed, the factors."""

    def __init__(self, ctx, grad_out: Tensor) -> None:  # type: ignore[no-untyped-def]
        self.q, self.k, self.v, self.query_factors, self.key_factors, *rest = ctx.saved_tensors
        self.out, self.lse, self.threshold = rest
        self.grad_out, self.scale = grad_out, ctx.scale
        self.grad_q, self.grad_k, self.grad_v = (
            torch.zeros_like(tensor, dtype=self.lse.dtype) for tensor in (self.q, self.k, self.v)
        )
        self.factor_gradients = None
        self.wide_v, self.wide_out, self.wide_grad_out = self.v, self.out, grad_out
        if any(ctx.needs_input_grad[3:5]):
            factor_gradients = FactorGradients(
                self.query_factors, self.key_factors, self.q, self.k, ctx.scale
            )
            self.wide_v, self.wide_out, self.wide_grad_out = (
                factor_gradients.widen(tensor) for tensor in (self.v, self.out, grad_out)
            )
            self.factor_gradients = factor_gradients

    def add_triangles(self, block: slice) -> None:
        """Add the gradients from the triangles on the diagonal of a block of rows."""
        bias = triangle_bias(self.query_factors, self.key_factors, block, self.lse.dtype)
        q, k, v, out, grad_out, lse = (
            to_tiles(tensor, block, TRIANGLE_ROWS)
            for tensor in (self.q, self.k, self.v, self.out, self.grad_out, self.lse)
        )
        grad_k, grad_v = torch.zeros_like(k, dtype=lse.dtype), torch.zeros_like(v, dtype=lse.dtype)
        grad_q, grad_bias = fused_sdpa.backward_with_bias(
            QueryBlock(q, out, grad_out, lse), k, v, bias, self.scale, grad_k, grad_v
        )
        heads = self.q.shape[1]
        self.grad_q[:, :, block] += from_tiles(grad_q, heads)
        self.grad_k[:, :, block] += from_tiles(grad_k, heads)
        self.grad_v[:, :, block] += from_tiles(grad_v, heads)
        if self.factor_gradients:
            self.factor_gradients.add_triangles(block, grad_bias)

    def add_rectangle(self, rows: slice, keys: slice) -> None:
        """Add the gradients from a rectangle below the diagonal."""
        bias, constant = rectangle_bias(
            self.query_factors, self.key_factors, rows, keys, self.threshold
        )
        q, k = self.q[:, :, rows], self.k[:, :, keys]
        if self.factor_gradients:
            q, k = self.factor_gradients.widened_inputs(rows, keys)
        v, out = self.wide_v[:, :, keys], self.wide_out[:, :, rows]
        grad_out, lse = self.wide_grad_out[:, :, rows], self.lse[:, :, rows] - constant
        grad_q, grad_k, grad_v = fused_sdpa.backward(
            QueryBlock(q, out, grad_out, lse), k, v, bias, self.scale
        )
        width = self.q.shape[-1]
        self.grad_q[:, :, rows] += grad_q[..., :width]
        self.grad_k[:, :, keys] += grad_k[..., :width]
        self.grad_v[:, :, keys] += grad_v[..., :width]
        if self.factor_gradients:
            self.factor_gradients.add_rectangle(rows, keys, grad_q, grad_k)


def row_blocks(length: int) -> Iterator[slice]:
    """Yield blocks of BLOCK_ROWS rows; the last may be shorter."""
    for start in range(0, length, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, length))


def rectangles(block: slice) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and keys of the rectangles below the diagonal in a block of rows."""
    if block.start:
        yield block, slice(0, block.start)
    for start in range(block.start + TRIANGLE_ROWS, block.stop, TRIANGLE_ROWS):
        yield slice(start, start + TRIANGLE_ROWS), slice(block.start, start)


def triangle_bias(
    query_factors: Tensor | None, key_factors: Tensor, block: slice, dtype: torch.dtype
) -> Tensor:
    """Return the bias [B, H * n, 64, 64] of the triangles of a block, -inf above the diagonal."""
    key_tiles = to_tiles(key_factors, block, TRIANGLE_ROWS)
    key_tiles = key_tiles - key_tiles[:, :, :1]
    if query_factors is None:
        bias = key_tiles.mT - key_tiles
    else:
        query_tiles = to_tiles(query_factors, block, TRIANGLE_ROWS)
        bias = query_tiles @ key_tiles.mT - (query_tiles * key_tiles).sum(-1, keepdim=True)
    above_diagonal = torch.ones(bias.shape[-2:], dtype=torch.bool, device=bias.device).triu(1)
    return bias.to(dtype).masked_fill_(above_diagonal, -torch.inf)


def rectangle_bias(
    query_factors: Tensor | None,
    key_factors: Tensor,
    rows: slice,
    keys: slice,
    threshold: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the bias [B, H, R, K] relative to the first row, and a constant [B, H, R] per query.

    The full bias is their sum. Without query factors, the first term is the same for all rows, and
    keys and rows whose sums are all below `threshold` get no weight.
    """
    dtype, first = threshold.dtype, key_factors[:, :, rows.start, None]
    relative = key_factors[:, :, keys] - first
    constant = first - key_factors[:, :, rows]
    if query_factors is None:
        by_key, by_row = relative[..., 0].to(dtype), constant[..., 0].to(dtype)
        bias = mask_negligible(by_key, by_row, threshold)[:, :, None]
        bias = bias.expand(-1, -1, by_row.shape[-1], -1)
        return bias, mask_negligible(by_row, by_key, threshold)
    query = query_factors[:, :, rows]
    # Large terms of different columns may cancel and lose precision. Relative to the first row,
    # the query factors are small, and so are these terms.
    origin = query[:, :, :1] if query.shape[-1] > 1 else torch.zeros_like(query[:, :, :1])
    bias = (query - origin).to(dtype) @ relative.to(dtype).mT
    bias += (origin @ relative.mT).to(dtype)
    return bias, (query * constant).sum(-1).to(dtype)


def mask_negligible(terms: Tensor, others: Tensor, threshold: Tensor) -> Tensor:
    """Return `terms` [B, H, N], lowered where the sums with all `others` are below `threshold`.

    The lowered sums are at most MASKED_BIAS.
    """
    highest = others.amax(-1, keepdim=True).clamp(min=0)
    return torch.where(terms + highest < threshold, MASKED_BIAS - highest, terms)


def weight_threshold(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Return the bias [B, H, 1] below which the weight of a key is negligible for any q . k.

    Because |q . k| <= |q| |k|, the weight of a key with a lower bias is less than
    exp(-MARGIN) / T times the weight of the query's own key, whose bias is 0 (the pruning threshold
    of Lin et al. 2025, arXiv:2504.06949).
    """
    dtype = score_dtype(q.dtype)
    q_norm, k_norm = (tensor.norm(dim=-1, dtype=dtype).amax(-1) for tensor in (q, k))
    return -(2 * scale * q_norm * k_norm + math.log(q.shape[2]) + MARGIN[dtype])[..., None]
