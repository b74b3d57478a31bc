"""Plain causal attention with PyTorch's fused kernels (`scaled_dot_product_attention`).

These kernels do not return the logsumexp of the scores, so a sink becomes an additional first key
whose value is 0. The scores of this key come from additional columns of queries and keys.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from posenc.attention.fused_sdpa import HEAD_DIM_MULTIPLE
from posenc.attention.reference import overridden_hook_reason, score_dtype
from posenc.attention.toeplitz import not_toeplitz_reason
from posenc.encodings.base import Encoding


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it does.

    It supports encodings that act on attention only through `rotate` and `sink`.
    """
    hooks = ("rotation_index", "bias", "content_bias", "normalize", "value_bias", "mask")
    if reason := overridden_hook_reason(encoding, *hooks):
        return reason
    return None if encoding.window() is None else "it has a window"


def slow_reason(encoding: Encoding, device: torch.device, pos: Tensor) -> str | None:
    """Return why another kernel is faster, or None."""
    has_sink_on_cpu = device.type == "cpu" and encoding.overrides("sink")
    if has_sink_on_cpu and not_toeplitz_reason(encoding, pos) is None:
        return "toeplitz computes its sink with fewer operations"
    return None


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Return attention as `reference.attend` defines it."""
    sink, scale = encoding.sink(), v.shape[-1] ** -0.5
    if sink is None:
        return causal_attention(q, k, v, scale)
    return attention_with_sink_key(q, k, v, sink, scale)


def attention_with_sink_key(q: Tensor, k: Tensor, v: Tensor, sink: Tensor, scale: float) -> Tensor:
    """Return causal attention with a sink [H] as an additional key before the first token.

    The sink's logit is split into its rounded value and the remainder, in two columns, so that it
    is as precise in bfloat16 as a score. Zero columns pad it to a multiple of HEAD_DIM_MULTIPLE.
    """
    logits = sink.to(score_dtype(q.dtype)) / scale
    high = logits.to(q.dtype)
    columns = torch.stack([high, (logits - high).to(q.dtype)], dim=-1)  # [H, 2]
    padding = -(q.shape[-1] + 2) % HEAD_DIM_MULTIPLE
    query_columns = columns[:, None].expand(*q.shape[:3], 2)
    wide_q = pad(torch.cat([q, query_columns], dim=-1), (0, padding, 1, 0))
    sink_key = pad(q.new_ones(2), (q.shape[-1], padding)).expand(*k.shape[:2], 1, -1)
    wide_k = torch.cat([sink_key, pad(k, (0, 2 + padding))], dim=2)
    return causal_attention(wide_q, wide_k, pad(v, (0, 0, 1, 0)), scale)[:, :, 1:]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return softmax(scale q . k) v, where each query attends to itself and all earlier tokens.

    Values are padded to the width of the keys, because the fused kernels require equal widths.
    """
    padded = pad(v, (0, q.shape[-1] - v.shape[-1]))
    out = scaled_dot_product_attention(q, k, padded, is_causal=True, scale=scale)
    return out[..., : v.shape[-1]]
