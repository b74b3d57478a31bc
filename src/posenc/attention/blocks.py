"""Attention with any encoding, computed one block of query rows at a time.

Only the scores of one block are in memory at once, so memory is O(rows x T). In training, the
biases of all blocks are kept for the backward pass, once for all layers that have the same
encoding; if they would take too much memory, they are recomputed. Scores and weights are always
recomputed.
"""

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from posenc.attention import fused_sdpa
from posenc.attention.bias_cache import cached_bias, num_encodings
from posenc.attention.block_attention import BlockAttention
from posenc.attention.reference import (
    AttentionInputs,
    attend_rows,
    rotation_index,
    score_bias,
    score_dtype,
    visible_keys,
    window_size,
)
from posenc.encodings.base import Encoding

BLOCK_BUDGET = 2**22
"""The maximum number of scores in a block, unless it has the minimum number of rows."""
EVALUATION_BUDGET = 2**24
"""The same in evaluation, if the bias is not copied to mask it."""
ROW_LIMITS = (16, 256)
"""The smallest and the largest number of rows in a block."""
SAVED_BUDGET = 2**27
"""The largest number of bias entries that are kept for the backward pass."""


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> None:
    """Return None: every encoding is supported."""


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Return attention as `reference.attend` defines it."""
    batch, heads, length, _ = q.shape
    layers, training = encoding.geometry.layers, torch.is_grad_enabled()
    content_dependent = encoding.overrides("content_bias") or needs_scores(encoding)
    same_for_batch = not content_dependent and pos.ndim == 1
    num_biases = num_encodings(layers) if same_for_batch else layers * batch
    saved_entries = num_biases * heads * length * window_size(encoding, length)
    inputs, outputs = AttentionInputs(x, q, k, v, pos), []
    # The last block has the most keys. It is computed first, so that the others reuse its memory.
    without_copy = not training and masks_only_later_keys(encoding)
    budget = EVALUATION_BUDGET if without_copy else BLOCK_BUDGET
    for rows, keys in reversed(row_blocks(encoding, q, budget)):
        arguments = (encoding, inputs, rows, keys)
        if without_copy and rows.start:
            outputs.append(attend_without_copy(encoding, inputs, rows))
        elif training and saved_entries > SAVED_BUDGET:
            outputs.append(checkpoint(attend_block, *arguments, use_reentrant=False))
        else:
            outputs.append(attend_block(*arguments, use_cache=training and same_for_batch))
    return torch.cat(outputs[::-1], dim=2)


def row_blocks(
    encoding: Encoding, q: Tensor, budget: int = BLOCK_BUDGET
) -> list[tuple[slice, slice]]:
    """Return the query rows of each block and the keys that their scores depend on."""
    batch, heads, length, _ = q.shape
    smallest, largest = ROW_LIMITS
    size = max(smallest, min(largest, budget // (batch * heads * length)))
    before = window_size(encoding, length) - 1 + encoding.content_lookback()
    blocks = [slice(start, min(start + size, length)) for start in range(0, length, size)]
    return [(rows, slice(max(0, rows.start - before), rows.stop)) for rows in blocks]


def attend_block(
    encoding: Encoding, inputs: AttentionInputs, rows: slice, keys: slice, use_cache: bool = False
) -> Tensor:
    """Return the attention output [B, H, R, d] of a block of rows.

    With `use_cache`, all layers that have the same encoding share its bias.
    """
    if needs_scores(encoding):
        return attend_rows(encoding, inputs, rows, keys)
    q, k, v = inputs.q, inputs.k, inputs.v
    compute = partial(masked_bias, encoding, inputs, rows, keys)
    bias = cached_bias((id(encoding), rows.start), compute) if use_cache else compute()
    queries, block_keys = q[:, :, rows], k[:, :, keys]
    index = rotation_index(encoding, inputs.pos, rows, keys)
    width = q.shape[-1] if index is None else encoding.geometry.head_width
    values = _with_width(v[:, :, keys], width)
    scale = v.shape[-1] ** -0.5
    sink = encoding.sink()
    if index is not None or sink is not None or bias.requires_grad or bias.dtype != q.dtype:
        # `scaled_dot_product_attention` supports none of these.
        out = BlockAttention.apply(queries, block_keys, values, bias, sink, index, scale)
    else:
        out = scaled_dot_product_attention(queries, block_keys, values, attn_mask=bias, scale=scale)
    return out[..., : v.shape[-1]]


def masks_only_later_keys(encoding: Encoding) -> bool:
    """Whether `bias` is all that changes the scores, and every earlier key is attended to."""
    others = ("content_bias", "normalize", "value_bias", "mask", "rotation_index", "sink")
    is_masked = encoding.window() is not None
    return encoding.overrides("bias") and not (is_masked or any(map(encoding.overrides, others)))


def attend_without_copy(encoding: Encoding, inputs: AttentionInputs, rows: slice) -> Tensor:
    """Return the attention output [B, H, R, d] of a block of rows without a copy of its bias.

    Masking would copy the bias. Only keys within the block are masked, so that the outputs of these
    and of the earlier keys are computed separately and merged.
    """
    _, q, k, v, _ = inputs
    bias = unmasked_bias(encoding, inputs, rows, slice(0, rows.stop))
    masked = ~visible_keys(encoding, rows, rows, q.device)
    own_bias = torch.where(masked, -torch.inf, bias[..., rows])
    values, scale = _with_width(v, q.shape[-1]), v.shape[-1] ** -0.5
    parts = (slice(0, rows.start), bias[..., : rows.start]), (rows, own_bias)
    (out, lse), own = (
        fused_sdpa.forward(q[:, :, rows], k[:, :, keys], values[:, :, keys], part_bias, scale)
        for keys, part_bias in parts
    )
    out = out.to(lse.dtype)
    fused_sdpa.merge_outputs(out, lse, *own)
    return out[..., : v.shape[-1]].to(q.dtype)


def needs_scores(encoding: Encoding) -> bool:
    """Return whether a hook computes the attention weights or is called with them."""
    return encoding.overrides("normalize") or encoding.overrides("value_bias")


def masked_bias(encoding: Encoding, inputs: AttentionInputs, rows: slice, keys: slice) -> Tensor:
    """Return the bias [1|B, 1|H, R, K] of a block, -inf where a key is masked."""
    masked = ~visible_keys(encoding, rows, keys, inputs.q.device)
    return torch.where(masked, -torch.inf, unmasked_bias(encoding, inputs, rows, keys))


def unmasked_bias(encoding: Encoding, inputs: AttentionInputs, rows: slice, keys: slice) -> Tensor:
    """Return the bias [1|B, 1|H, R, K] of a block, which is zero if the encoding has none."""
    x, q, k, _, pos = inputs
    bias = score_bias(encoding, x, q, k, pos, rows, keys)
    if bias is None:
        shape = 1, 1, rows.stop - rows.start, keys.stop - keys.start
        bias = q.new_zeros(shape, dtype=score_dtype(q.dtype))
    return bias


def _with_width(v: Tensor, width: int) -> Tensor:
    """Return v with zeros appended to its channels.

    `pad` copies even if nothing is appended, and the copies of all blocks would be saved.
    """
    return v if v.shape[-1] == width else pad(v, (0, width - v.shape[-1]))
