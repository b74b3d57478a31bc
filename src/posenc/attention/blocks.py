"""Attention with any encoding, computed one block of query rows at a time.

In evaluation, only the scores of one block are in memory at once, so memory is O(rows x T). In
training, the biases of all blocks are kept for the backward pass; if they would take too much
memory, they are recomputed. Layers with the same encoding share the kept biases if these are the
same for all sequences in the batch. Scores and weights are always recomputed, unless hooks of the
encoding need them (`needs_scores`); then they are kept or recomputed like the biases.

`BlockAttention` handles what PyTorch's fused attention does not support: a sink, a learnable
bias, a bias whose dtype differs from that of q, and several rotations. Each rotation gives the
scores of some query-key pairs; the outputs of the rotations are merged according to the logsumexp
of their scores.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from posenc.attention import fused_sdpa
from posenc.attention.bias_cache import cached_bias, num_encodings
from posenc.attention.fused_sdpa import QueryBlock
from posenc.attention.reference import (
    AttentionInputs,
    attend_rows,
    rotation_index,
    score_bias,
    score_dtype,
    visible_keys,
    window_size,
)
from posenc.attention.reference import unsupported_reason as unsupported_reason
from posenc.encodings.base import Encoding

BLOCK_BUDGET = 2**22
"""The maximum number of scores in a block; one with the minimum number of rows may exceed it."""
EVALUATION_BUDGET = 2**24
"""The same limit in evaluation, for blocks that `attend_without_copy` computes."""
ROW_LIMITS = (16, 256)
"""The smallest and the largest number of rows in a block."""
SAVED_BUDGET = 2**27
"""The largest number of bias entries that are kept for the backward pass."""


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Return attention as `reference.attend` defines it."""
    batch, heads, length, _ = q.shape
    layers, training = encoding.geometry.layers, torch.is_grad_enabled()
    content_dependent = encoding.overrides("content_bias") or needs_scores(encoding)
    same_for_batch = not content_dependent and pos.ndim == 1
    num_biases = num_encodings(layers) if same_for_batch else layers * batch
    saved_entries = num_biases * heads * length * window_size(encoding, length)
    inputs, outputs = AttentionInputs(x, q, k, v, pos), []
    without_copy = not training and is_causal_with_bias(encoding)
    budget = EVALUATION_BUDGET if without_copy else BLOCK_BUDGET
    # The last block has the most keys. It is computed first, so that the others reuse its memory.
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
    num_earlier_keys = window_size(encoding, length) - 1 + encoding.content_lookback()
    blocks = [slice(start, min(start + size, length)) for start in range(0, length, size)]
    return [(rows, slice(max(0, rows.start - num_earlier_keys), rows.stop)) for rows in blocks]


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
    width = q.shape[-1] if index is None else encoding.geometry.head_dim
    values = _pad_channels(v[:, :, keys], width)
    scale = v.shape[-1] ** -0.5
    sink = encoding.sink()
    if index is not None or sink is not None or bias.requires_grad or bias.dtype != q.dtype:
        # PyTorch's fused attention supports none of these.
        out = BlockAttention.apply(queries, block_keys, values, bias, sink, index, scale)
    else:
        out = scaled_dot_product_attention(queries, block_keys, values, attn_mask=bias, scale=scale)
    return out[..., : v.shape[-1]]


def is_causal_with_bias(encoding: Encoding) -> bool:
    """Return whether attention is causal attention with a `bias`, and nothing else."""
    others = ("content_bias", "normalize", "value_bias", "mask", "rotation_index", "sink")
    has_window = encoding.window() is not None
    return encoding.overrides("bias") and not (has_window or any(map(encoding.overrides, others)))


def attend_without_copy(encoding: Encoding, inputs: AttentionInputs, rows: slice) -> Tensor:
    """Return the attention output [B, H, R, d] of a block of rows without a copy of its bias.

    Masking would copy the bias. Only keys within the block need a mask, so their output and that of
    the earlier keys are computed separately and merged.
    """
    _, q, k, v, _ = inputs
    bias = unmasked_bias(encoding, inputs, rows, slice(0, rows.stop))
    masked = ~visible_keys(encoding, rows, rows, q.device)
    block_bias = torch.where(masked, -torch.inf, bias[..., rows])
    values, scale = _pad_channels(v, q.shape[-1]), v.shape[-1] ** -0.5
    parts = (slice(0, rows.start), bias[..., : rows.start]), (rows, block_bias)
    (out, lse), block_result = (
        fused_sdpa.forward(q[:, :, rows], k[:, :, keys], values[:, :, keys], part_bias, scale)
        for keys, part_bias in parts
    )
    out = out.to(lse.dtype)
    fused_sdpa.merge_outputs(out, lse, *block_result)
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


def _pad_channels(v: Tensor, width: int) -> Tensor:
    """Return v, zero-padded to `width` channels.

    `pad` copies even if there is nothing to pad, and autograd would save the copies of all blocks.
    """
    return v if v.shape[-1] == width else pad(v, (0, width - v.shape[-1]))


class RotationPart(NamedTuple):
    """A rotation: its channels in q and k, the range of keys that use it, and the keys' bias.

    `empty` [R] is True for rows in which no key uses it; None means that there are no such rows.
    """

    channels: slice
    keys: slice
    bias: Tensor
    empty: Tensor | None


class BlockAttention(torch.autograd.Function):
    """Attention of q [B, H, R, d'], k [B, H, K, d'] and v [B, H, K, d].

    The bias is [1|B, 1|H, R, K]. With a rotation index [R, K], q and k are several rotations of d
    channels each, concatenated along the last dimension; otherwise d' = d.
    """

    @staticmethod
    def forward(ctx, q, k, v, bias, sink, index, scale):  # type: ignore[no-untyped-def]
        parts = rotation_parts(index, bias, v.shape[-1])
        out, lse = attend_part(q, k, v, next(parts), scale)
        out = out.to(lse.dtype)
        for part in parts:
            fused_sdpa.merge_outputs(out, lse, *attend_part(q, k, v, part, scale))
        out = out.to(q.dtype)
        if sink is not None:
            out, lse = fused_sdpa.add_sink(out, lse, sink)
        ctx.save_for_backward(q, k, v, bias, sink, index, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad_out):  # type: ignore[no-untyped-def]
        q, k, v, bias, sink, index, out, lse = ctx.saved_tensors
        grad_q, grad_k, grad_v = (torch.zeros_like(part, dtype=lse.dtype) for part in (q, k, v))
        grad_bias = torch.zeros_like(bias, dtype=lse.dtype)
        for channels, keys, part_bias, _ in rotation_parts(index, bias, v.shape[-1]):
            grads = grad_k[:, :, keys, channels], grad_v[:, :, keys]
            block = QueryBlock(q[..., channels], out, grad_out, lse)
            part_k, part_v = k[:, :, keys, channels], v[:, :, keys]
            part_grad_q, part_grad_bias = fused_sdpa.backward_with_bias(
                block, part_k, part_v, part_bias, ctx.scale, *grads
            )
            grad_q[..., channels] += part_grad_q
            grad_bias[..., keys] += part_grad_bias
        block = QueryBlock(q, out, grad_out, lse)
        grad_sink = None if sink is None else fused_sdpa.sink_gradient(block, sink)
        return (
            grad_q.to(q.dtype),
            grad_k.to(k.dtype),
            grad_v.to(v.dtype),
            grad_bias.to(bias.dtype),
            grad_sink,
            None,
            None,
        )


def rotation_parts(index: Tensor | None, bias: Tensor, width: int) -> Iterator[RotationPart]:
    """Yield each rotation in use, with a bias of -inf for pairs that use another rotation."""
    if index is None:
        yield RotationPart(slice(0, width), slice(0, bias.shape[-1]), bias, None)
        return
    visible = (bias > -torch.inf).any(dim=0).any(dim=0)
    for i in range(int(index.max()) + 1):
        pairs = visible & (index == i)
        used = pairs.any(dim=0).nonzero()
        if len(used):
            keys = slice(int(used[0]), int(used[-1]) + 1)
            channels = slice(i * width, (i + 1) * width)
            part_bias = bias[..., keys].masked_fill(~pairs[:, keys], -torch.inf)
            yield RotationPart(channels, keys, part_bias, ~pairs.any(dim=1))


def attend_part(
    q: Tensor, k: Tensor, v: Tensor, part: RotationPart, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the attention output and the logsumexp of the scores for one rotation.

    Rows without keys have the lowest finite logsumexp; merging two rows with -inf would give NaN.
    """
    channels, keys, bias, empty = part
    if empty is not None:
        bias = bias.masked_fill(empty[:, None], 0)
    inputs = q[..., channels], k[:, :, keys, channels], v[:, :, keys]
    out, lse = fused_sdpa.forward(*inputs, bias, scale)
    return out, lse if empty is None else lse.masked_fill(empty, torch.finfo(lse.dtype).min)
