"""Causal attention in bfloat16 on a CPU with a bias that is proportional to distance, as in ALiBi.

Every query can use the biases of the last query: the difference is a constant per query, which does
not change the softmax. The bias is then one value per head and key, and the fused kernel runs once
for all queries.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.attention import fused_sdpa
from posenc.attention.fused_sdpa import QueryBlock
from posenc.attention.toeplitz import not_toeplitz_reason
from posenc.encodings.base import Encoding

MAX_BIAS = 2.0**14
"""The largest supported absolute bias; near it, float32 rounds to multiples of 2^-10."""


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it does.

    `unsupported_bias_reason` then checks the values of the bias.
    """
    if not fused_sdpa.supports_is_causal(device):
        return f"PyTorch's fused CPU attention is not available (device: {device.type})"
    if dtype != torch.bfloat16:
        return "the kernel adds large biases, whose rounding errors are negligible only in bfloat16"
    if encoding.window() is not None or encoding.overrides("sink"):
        return "it has a window or a sink"
    return not_toeplitz_reason(encoding, pos)


def needs_bias_by_distance(encoding: Encoding) -> bool:
    """Return True: the kernel reads the bias from `bias_by_distance`."""
    return True


def unsupported_bias_reason(bias: Tensor) -> str | None:
    """Return why the kernel does not support the bias [H, T] by distance, or None if it does."""
    if bias.requires_grad:
        return "its bias is learnable"
    if bias.shape[1] < 2:
        return "there is only one token"
    if bias.abs().max() > MAX_BIAS:
        return f"the magnitude of its bias exceeds {MAX_BIAS:,.0f}"
    distance = torch.arange(bias.shape[1], device=bias.device)
    return (
        None
        if torch.equal(bias, bias[:, 1:2] * distance)
        else "its bias is not proportional to distance"
    )


def attend(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, bias: Tensor
) -> Tensor:
    """Return attention as `reference.attend` defines it; the kernel must support `bias`."""
    values = pad(v, (0, q.shape[-1] - v.shape[-1]))
    return KeyBiasAttention.apply(q, k, values, bias, v.shape[-1] ** -0.5)[..., : v.shape[-1]]


class KeyBiasAttention(torch.autograd.Function):
    """Causal attention of q, k, v [B, H, T, d'] with a bias [H, T] by distance."""

    @staticmethod
    def forward(ctx, q, k, v, bias, scale):  # type: ignore[no-untyped-def]
        length = q.shape[2]
        last_row = bias.flip(-1)[None, :, None].expand(1, -1, length, length)
        out, lse = fused_sdpa.forward(q, k, v, last_row, scale, is_causal=True)
        ctx.save_for_backward(q, k, v, last_row, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad_out):  # type: ignore[no-untyped-def]
        q, k, v, last_row, out, lse = ctx.saved_tensors
        block = QueryBlock(q, out, grad_out, lse)
        gradients = fused_sdpa.backward(block, k, v, last_row, ctx.scale, is_causal=True)
        return *gradients, None, None
