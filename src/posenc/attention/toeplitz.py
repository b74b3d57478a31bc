"""Attention on a CPU with a Toeplitz bias, a window and a sink, all of them optional.

A Toeplitz bias depends only on distance, so it is one vector per head. If the vector starts with
the largest distance, and the queries of a block are in reverse order, each row of the block's bias
is a slice of the vector that starts one entry after the slice for the previous row. The bias of a
block is therefore an overlapping view of the vector, which the fused kernel reads like any other
mask; no mask is stored.

A fixed bias is nearly free. A learnable one has a slower backward pass, which computes the
scores of BACKWARD_ROWS queries at a time.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention import fused_sdpa
from posenc.attention.fused_sdpa import QueryBlock
from posenc.attention.reference import overridden_hook_reason, score_dtype, window_size
from posenc.encodings.base import Encoding

FORWARD_ROWS = 256
BACKWARD_ROWS = 64
QUERY_DEPENDENT_REASON = (
    "its bias depends on the position of the query, which `limitations` does not declare"
)


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it does."""
    if device.type != "cpu":
        return f"the kernel runs only on a CPU, not on {device.type}"
    return not_toeplitz_reason(encoding, pos)


def not_toeplitz_reason(encoding: Encoding, pos: Tensor) -> str | None:
    """Return why attention cannot be computed with a Toeplitz bias, or None if it can."""
    hooks = ("rotation_index", "content_bias", "normalize", "value_bias", "mask")
    if reason := overridden_hook_reason(encoding, *hooks):
        return reason
    limitation = encoding.limitations.get("shift_invariant")
    if encoding.overrides("bias") and limitation is not None:
        return f"its bias does not depend only on distance: {limitation}"
    if pos.ndim > 1:
        return "the positions are coordinates"
    if not torch.equal(pos.diff(), torch.ones_like(pos[1:])):
        return "the positions are not consecutive"
    return None


def needs_bias_by_distance(encoding: Encoding) -> bool:
    """Return True: the kernel reads the bias from `bias_by_distance`."""
    return True


def bias_by_distance(encoding: Encoding, dtype: torch.dtype, pos: Tensor) -> Tensor | None:
    """Return the bias [H, T] at distances 0 to T-1, for q and k of type `dtype`.

    Returns None if the biases of the first two queries, the middle one and the last one differ,
    which shows that the bias depends on the position of the query.
    """
    dtype, length = score_dtype(dtype), len(pos)
    head = torch.arange(encoding.geometry.heads, device=pos.device)[:, None, None]
    distance = torch.arange(length, device=pos.device).to(dtype)[None]
    pos_q = pos[[0, min(1, length - 1), length // 2, -1], None]
    bias = encoding.bias(head, distance, pos_q)
    table = torch.zeros((), dtype=dtype, device=pos.device) if bias is None else bias
    table = table.expand(len(head), *table.shape[-2:-1] or (1,), length)
    return table[:, 0] if torch.equal(table, table[:, :1].expand_as(table)) else None


def attend(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, bias: Tensor
) -> Tensor:
    """Return attention as `reference.attend` defines it; `bias` comes from `bias_by_distance`."""
    window = window_size(encoding, q.shape[2])
    values = pad(v, (0, q.shape[-1] - v.shape[-1]))
    scale = v.shape[-1] ** -0.5
    inputs = q, k, values, reversed_bias(bias, window), encoding.sink()
    out = ToeplitzAttention.apply(*inputs, window, scale)
    return out[..., : v.shape[-1]]


def reversed_bias(bias: Tensor, window: int) -> Tensor:
    """Return the bias [H, T + FORWARD_ROWS - 1]: distances T-1 to 0, then -inf for later keys.

    It is also -inf outside the window.
    """
    outside = torch.arange(bias.shape[1], device=bias.device) >= window
    within = bias.masked_fill(outside, -torch.inf)
    return pad(within.flip(-1), (0, FORWARD_ROWS - 1), value=-torch.inf)


class ToeplitzAttention(torch.autograd.Function):
    """Attention of q, k, v [B, H, T, d'] with the bias of `reversed_bias` and an optional sink."""

    @staticmethod
    def forward(ctx, q, k, v, bias, sink, window, scale):  # type: ignore[no-untyped-def]
        reversed_q, length = q.flip(2), q.shape[2]
        out = torch.empty_like(reversed_q)
        lse = reversed_q.new_empty(q.shape[:3], dtype=score_dtype(q.dtype))
        for rows, keys, entries in reversed_blocks(length, window, FORWARD_ROWS):
            block_bias = toeplitz_view(bias[:, entries], keys)
            out[:, :, rows], lse[:, :, rows] = fused_sdpa.forward(
                reversed_q[:, :, rows], k[:, :, keys], v[:, :, keys], block_bias, scale
            )
        if sink is not None:
            out, lse = fused_sdpa.add_sink(out, lse, sink)
        ctx.save_for_backward(reversed_q, k, v, bias, sink, out, lse)
        ctx.window, ctx.scale = window, scale
        return out.flip(2)

    @staticmethod
    def backward(ctx, grad_out):  # type: ignore[no-untyped-def]
        reversed_q, k, v, bias, sink, out, lse = ctx.saved_tensors
        grad_out, dtype, learnable = grad_out.flip(2), lse.dtype, ctx.needs_input_grad[3]
        grad_q, grad_bias = torch.empty_like(reversed_q), torch.zeros_like(bias)
        grad_k, grad_v = torch.zeros_like(k, dtype=dtype), torch.zeros_like(v, dtype=dtype)
        size = BACKWARD_ROWS if learnable else FORWARD_ROWS
        for rows, keys, entries in reversed_blocks(reversed_q.shape[2], ctx.window, size):
            block = QueryBlock(*(part[:, :, rows] for part in (reversed_q, out, grad_out, lse)))
            block_bias = toeplitz_view(bias[:, entries], keys)
            inputs = (block, k[:, :, keys], v[:, :, keys], block_bias, ctx.scale)
            if learnable:
                grad_q[:, :, rows], grad_block_bias = fused_sdpa.backward_with_bias(
                    *inputs, grad_k[:, :, keys], grad_v[:, :, keys]
                )
                grad_bias[:, entries] += sum_by_entry(grad_block_bias[0])
            else:
                grad_q[:, :, rows], block_grad_k, block_grad_v = fused_sdpa.backward(*inputs)
                grad_k[:, :, keys] += block_grad_k
                grad_v[:, :, keys] += block_grad_v
        grad_sink = None
        if sink is not None:
            grad_sink = fused_sdpa.sink_gradient(QueryBlock(reversed_q, out, grad_out, lse), sink)
        grad_kv = grad_k.to(k.dtype), grad_v.to(v.dtype)
        return grad_q.flip(2), *grad_kv, grad_bias, grad_sink, None, None


def reversed_blocks(length: int, window: int, size: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield rows of the reversed queries, the keys they use, and the entries of `reversed_bias`."""
    for start in range(0, length, size):
        stop = min(start + size, length)
        first = max(0, start - window + 1)
        entries = slice(length - stop + first, length + stop - start - 1)
        yield slice(length - stop, length - start), slice(first, stop), entries


def toeplitz_view(bias: Tensor, keys: slice) -> Tensor:
    """Return entries [H, R + K - 1] as the bias [1, H, R, K] of reversed rows, without copying."""
    return bias.unfold(-1, keys.stop - keys.start, 1)[None]


def sum_by_entry(grad: Tensor) -> Tensor:
    """Return the gradient [H, R + K - 1] of the entries, given the gradient [H, R, K] of a view."""
    heads, rows, keys = grad.shape
    skewed = pad(grad, (0, rows)).flatten(1)[:, : rows * (rows + keys - 1)]
    return skewed.view(heads, rows, rows + keys - 1).sum(1)
