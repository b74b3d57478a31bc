"""Attention of a block of query rows in cases that `scaled_dot_product_attention` does not support.

These are a sink, a learnable bias, a bias whose dtype differs from that of q, and several
rotations. Each rotation gives the scores of some of the keys; the outputs of the rotations are
merged according to the logsumexp of their scores.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.attention import fused_sdpa
from posenc.attention.fused_sdpa import QueryBlock


class RotationPart(NamedTuple):
    """A rotation: its channels in q and k, the range of keys that use it, and their bias.

    `empty` [R] is True for rows in which no key uses it; None means that there are no such rows.
    """

    channels: slice
    keys: slice
    bias: Tensor
    empty: Tensor | None


class BlockAttention(torch.autograd.Function):
    """Attention of q [B, H, R, d'], k [B, H, K, d'] and v [B, H, K, d].

    The bias is [1|B, 1|H, R, K]. With a rotation index [R, K], q and k hold several rotations of d
    channels each, one after the other; otherwise d' = d.
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
    """Yield the rotations in use; their biases are -inf for pairs that use another one."""
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

    Rows without keys have the lowest finite logsumexp; with -inf, merging two of them would be NaN.
    """
    channels, keys, bias, empty = part
    if empty is not None:
        bias = bias.masked_fill(empty[:, None], 0)
    inputs = q[..., channels], k[:, :, keys, channels], v[:, :, keys]
    out, lse = fused_sdpa.forward(*inputs, bias, scale)
    return out, lse if empty is None else lse.masked_fill(empty, torch.finfo(lse.dtype).min)
