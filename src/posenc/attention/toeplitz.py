"""Attention with a bias of distance alone, at the speed and in the memory of plain attention.

Such a bias is one line of numbers a head. With the queries of a block in reverse order, row u of
its scores adds the line from u on: a view of the line that moves by one with every row, -inf
where keys lie ahead. The fused kernel reads it as it reads any mask, and no mask is ever made.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention import fused_sdpa, toeplitz_bias
from posenc.attention.block_gradients import Rows, Sums, backward
from posenc.attention.scores import wide, window_of
from posenc.attention.unsupported import UnsupportedKernelError
from posenc.encodings.base import Encoding

FORWARD_ROWS = 256
BACKWARD_ROWS = 64


def applies(encoding: Encoding, q: Tensor, pos: Tensor) -> str | None:
    """Why not, if the encoding is more than a bias of distance and a window at these positions."""
    if q.device.type != "cpu":
        return f"it runs on the CPU alone, not on {q.device.type}"
    return toeplitz_bias.applies(encoding, pos)


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it, or UnsupportedKernelError."""
    why = applies(encoding, q, pos)
    found = None if why else toeplitz_bias.line_of(encoding, q, pos)
    if found is None:
        raise UnsupportedKernelError("lines", encoding, why or toeplitz_bias.LOOKS_AT_QUERY)
    return with_line(encoding, q, k, v, found)


def with_line(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Causal attention with a line [H, T] for bias, within the encoding's window."""
    window = window_of(encoding, q.shape[2])
    values = pad(v, (0, q.shape[-1] - v.shape[-1]))
    out = Lines.apply(q, k, values, reversed_line(bias, window), window, v.shape[-1] ** -0.5)
    return out[..., : v.shape[-1]]


def reversed_line(bias: Tensor, window: int) -> Tensor:
    """A line [H, T + FORWARD_ROWS - 1] at distances T-1 .. 0, then ahead of the query."""
    outside = torch.arange(bias.shape[1], device=bias.device) >= window
    within = bias.masked_fill(outside, -torch.inf)
    return pad(within.flip(-1), (0, FORWARD_ROWS - 1), value=-torch.inf)


class Lines(torch.autograd.Function):
    """Attention of q, k, v [B, H, T, d'] with a line for bias, whose gradient is exact."""

    @staticmethod
    def forward(ctx, q, k, v, line, window, scale):  # type: ignore[no-untyped-def]
        reverse, length = q.flip(2), q.shape[2]
        out, lse = torch.empty_like(reverse), reverse.new_empty(q.shape[:3], dtype=wide(q.dtype))
        for rows, keys, places in blocks(length, window, FORWARD_ROWS):
            bias = view(line, places, keys)[None]
            result = fused_sdpa.forward(
                reverse[:, :, rows], k[:, :, keys], v[:, :, keys], bias, scale
            )
            out[:, :, rows], lse[:, :, rows] = result
        ctx.save_for_backward(reverse, k, v, line, out, lse)
        ctx.window, ctx.scale = window, scale
        return out.flip(2)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        reverse, k, v, line, out, lse = ctx.saved_tensors
        grad, dtype, trained = grad.flip(2), lse.dtype, ctx.needs_input_grad[3]
        grad_q, grad_line = torch.empty_like(reverse), torch.zeros_like(line)
        sums = Sums(torch.zeros_like(k, dtype=dtype), torch.zeros_like(v, dtype=dtype))
        size = BACKWARD_ROWS if trained else FORWARD_ROWS
        for rows, keys, places in blocks(reverse.shape[2], ctx.window, size):
            block = Rows(*(part[:, :, rows] for part in (reverse, out, grad, lse)))
            given = (block, k[:, :, keys], v[:, :, keys], view(line, places, keys)[None])
            into = Sums(*(part[:, :, keys] for part in sums))
            if trained:
                grad_q[:, :, rows], changes = backward(*given, ctx.scale, into)
                grad_line[:, places] += along_line(changes[0])
            else:
                grad_q[:, :, rows] = fused_sdpa.backward(*given, ctx.scale, into)
        return grad_q.flip(2), sums.k.to(k.dtype), sums.v.to(v.dtype), grad_line, None, None


def blocks(length: int, window: int, size: int):  # type: ignore[no-untyped-def]
    """Rows of the reversed queries, the keys they may see, and where both lie in the line."""
    for start in range(0, length, size):
        stop = min(start + size, length)
        first = max(0, start - window + 1)
        places = slice(length - stop + first, length + stop - start - 1)
        yield slice(length - stop, length - start), slice(first, stop), places


def view(line: Tensor, places: slice, keys: slice) -> Tensor:
    """The bias [H, R, K] of a block of reversed rows, without a copy."""
    return line[:, places].unfold(-1, keys.stop - keys.start, 1)


def along_line(changes: Tensor) -> Tensor:
    """Changes [H, R, K] added up over all that have the same place in the line: [H, R + K - 1]."""
    heads, rows, keys = changes.shape
    skewed = pad(changes, (0, rows)).flatten(1)[:, : rows * (rows + keys - 1)]
    return skewed.view(heads, rows, rows + keys - 1).sum(1)
