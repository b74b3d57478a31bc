"""Attention with any encoding, a block of query rows at a time over the keys that they may see.

What is held at once are the scores of a block, as many rows as the budget allows: memory is
O(rows x T). In training the biases of all blocks are kept for the backward pass, once for all
layers where these have the same, or formed again where that would take too much; scores and
weights are always formed again.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from posenc.attention import fused_sdpa
from posenc.attention.bias_cache import different, shared
from posenc.attention.block_gradients import Rows, Sums, backward
from posenc.attention.reference import attend_rows
from posenc.attention.scores import bias, seen, wide, window_of
from posenc.encodings.base import Encoding

BLOCK_BUDGET = 2**22  # scores of a block
ROWS = (16, 256)  # at least and at most
SAVED_BUDGET = 2**27  # numbers kept as biases for the backward pass


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it."""
    batch, heads, length, _ = q.shape
    layers, training = encoding.geometry.layers, torch.is_grad_enabled()
    of_position = (
        not (encoding.overrides("content_bias") or encoding.overrides("value_bias"))
        and pos.ndim == 1
    )
    biases = different(layers) if of_position else layers * batch
    saved = biases * heads * length * window_of(encoding, length)
    found = []
    for block, keys in reversed(row_blocks(encoding, q)):  # later ones fit where the largest was
        given = (encoding, x, q, k, v, pos, block, keys)
        if training and saved > SAVED_BUDGET:
            found.append(checkpoint(one, *given, use_reentrant=False))
        else:
            found.append(one(*given, share=training and of_position))
    return torch.cat(found[::-1], dim=2)


def row_blocks(encoding: Encoding, q: Tensor) -> list[tuple[slice, slice]]:
    """Runs of query rows, as long as the budget allows, and of the keys that they may see."""
    batch, heads, length, _ = q.shape
    rows = max(ROWS[0], min(ROWS[1], BLOCK_BUDGET // (batch * heads * length)))
    window = window_of(encoding, length)
    found = [slice(start, min(start + rows, length)) for start in range(0, length, rows)]
    return [(block, slice(max(0, block.start - window + 1), block.stop)) for block in found]


def one(
    encoding: Encoding,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    rows: slice,
    keys: slice,
    share: bool = False,
) -> Tensor:
    """A block of rows, its bias that of all layers with the same encoding if `share`.

    By explicit softmax where the encoding needs the weights themselves.
    """
    if encoding.overrides("value_bias"):
        return attend_rows(encoding, x, q, k, v, pos, rows, keys)
    form = partial(masked_bias, encoding, x, q, k, pos, rows, keys)
    added = shared((id(encoding), rows.start), form) if share else form()
    queries, keys_seen = q[:, :, rows], k[:, :, keys]
    values = pad(v[:, :, keys], (0, q.shape[-1] - v.shape[-1]))
    scale = v.shape[-1] ** -0.5
    if added.requires_grad or added.dtype != q.dtype:  # no fused kernel takes either
        out = Biased.apply(queries, keys_seen, values, added, scale)
    else:
        given = (queries, keys_seen, values)
        out = scaled_dot_product_attention(*given, attn_mask=added, scale=scale)
    return out[..., : v.shape[-1]]


def masked_bias(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor, rows: slice, keys: slice
) -> Tensor:
    """The bias [1|B, 1|H, R, K] of a block, -inf where a key is not seen."""
    added = bias(encoding, x, q, k, pos, rows, keys)
    hidden = ~seen(rows, keys, encoding.window(), q.device)
    if added is None:
        added = torch.zeros_like(hidden, dtype=wide(q.dtype))[None, None]
    return added.masked_fill(hidden, -torch.inf)


class Biased(torch.autograd.Function):
    """Attention of a block with a bias [1|B, H, R, K] wider than q, or with a gradient."""

    @staticmethod
    def forward(ctx, q, k, v, added, scale):  # type: ignore[no-untyped-def]
        out, lse = fused_sdpa.forward(q, k, v, added, scale)
        ctx.save_for_backward(q, k, v, added, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        q, k, v, added, out, lse = ctx.saved_tensors
        sums = Sums(torch.zeros_like(k, dtype=lse.dtype), torch.zeros_like(v, dtype=lse.dtype))
        found = backward(Rows(q, out, grad, lse), k, v, added, ctx.scale, sums)
        return found[0].to(q.dtype), sums.k.to(k.dtype), sums.v.to(v.dtype), found[1], None
