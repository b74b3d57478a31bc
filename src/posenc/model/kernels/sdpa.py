"""PyTorch's scaled dot-product attention, fed so that any encoding keeps its fast kernels.

Without a bias: plain causal attention. With a bias of exact low rank: its factors become columns
of queries and keys. With any other: blocks of query rows over the keys that they may see, so that
no mask of T x T exists; recomputed in the backward pass where saving them would cost too much.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from posenc.encodings.base import Encoding
from posenc.model.kernels.reference import attend_rows
from posenc.model.kernels.scores import bias, seen

ROWS = 256
BLOCK_BUDGET = 2**24  # scores of one block
SAVED_BUDGET = 2**27  # scores kept for the backward pass, in all layers


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it."""
    if encoding.acts("mix") or encoding.window() is not None:
        return _blocked(encoding, x, q, k, v, pos)
    if not (encoding.acts("bias") or encoding.acts("content_bias")):
        return _causal(q, k, v, v.shape[-1] ** -0.5)
    factors = encoding.bias_factors(x, pos) if q.dtype == torch.float32 else None
    if factors is not None:
        return _factored(q, k, v, *factors)
    return _blocked(encoding, x, q, k, v, pos)


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Values narrower than keys would leave the fast kernel silently; padded, they do not."""
    padded = pad(v, (0, q.shape[-1] - v.shape[-1]))
    out = scaled_dot_product_attention(q, k, padded, is_causal=True, scale=scale)
    return out[..., : v.shape[-1]]


def _factored(q: Tensor, k: Tensor, v: Tensor, fq: Tensor, fk: Tensor) -> Tensor:
    """The bias fq . fk as the first columns of q and k; first, since sums there lose least.

    Factors in float64, which may grow with length, become two columns each: float32 alone is off
    by 1e-4 at 8,000 tokens. The scale is a power of two, so that it does not round them.
    """
    scale = v.shape[-1] ** -0.5
    near = 2.0 ** round(math.log2(scale))
    columns_q, columns_k = [q * (scale / near)], [k]
    (high_q, low_q), (high_k, low_k) = _halves(fq / near), _halves(fk)
    if fq.dtype == torch.float64:
        columns_q, columns_k = [high_q, low_q, *columns_q], [low_k, high_k, *columns_k]
    columns_q, columns_k = [high_q, *columns_q], [high_k, *columns_k]
    lead = (*q.shape[:2], -1, -1)
    wide_q = torch.cat([column.expand(lead) for column in columns_q], dim=-1)
    wide_k = torch.cat([column.expand(lead) for column in columns_k], dim=-1)
    return _causal(wide_q, wide_k, v, near)


def _halves(factor: Tensor) -> tuple[Tensor, Tensor]:
    """What float32 holds of a factor, and of the rest."""
    high = factor.float()
    return high, (factor - high).float()


def _blocked(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    batch, heads, length, _ = q.shape
    rows = max(16, min(ROWS, BLOCK_BUDGET // (batch * heads * length)))
    window = encoding.window() or length
    saved = encoding.geometry.layers * batch * heads * length * length
    recompute = torch.is_grad_enabled() and saved > SAVED_BUDGET
    blocks = []
    for start in range(0, length, rows):
        block = slice(start, min(start + rows, length))
        keys = slice(max(0, start - window + 1), block.stop)
        arguments = (encoding, x, q, k, v, pos, block, keys)
        blocks.append(
            checkpoint(_block, *arguments, use_reentrant=False) if recompute else _block(*arguments)
        )
    return torch.cat(blocks, dim=2)


def _block(
    encoding: Encoding,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    rows: slice,
    keys: slice,
) -> Tensor:
    """A block through SDPA, or by explicit softmax: no fast kernel has the bias's gradient."""
    added = bias(encoding, x, q, k, pos, rows, keys)
    if encoding.acts("mix") or (added is not None and added.requires_grad):
        return attend_rows(encoding, x, q, k, v, pos, rows, keys)
    hidden = ~seen(rows, keys, encoding.window(), q.device)
    mask = torch.zeros_like(hidden, dtype=torch.float32)[None, None] if added is None else added
    mask = mask.masked_fill(hidden, -torch.inf).to(q.dtype)
    scale = v.shape[-1] ** -0.5
    values = pad(v[:, :, keys], (0, q.shape[-1] - v.shape[-1]))
    out = scaled_dot_product_attention(
        q[:, :, rows], k[:, :, keys], values, attn_mask=mask, scale=scale
    )
    return out[..., : v.shape[-1]]
