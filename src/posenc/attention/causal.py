"""Plain causal attention with PyTorch's fused kernels (FlashAttention on a GPU)."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from posenc.encodings.base import Encoding


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it has no bias or window."""
    hooks = [hook for hook in ("bias", "content_bias", "value_bias") if encoding.overrides(hook)]
    if hooks:
        return f"it has a {hooks[0]}"
    return None if encoding.window() is None else "it has a window"


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Return attention as `reference.attend` defines it."""
    return causal_attention(q, k, v, v.shape[-1] ** -0.5)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return softmax(scale q . k) v, where each query attends to itself and all earlier tokens.

    Values are padded to the width of the keys, because the fused kernels require equal widths.
    """
    padded = pad(v, (0, q.shape[-1] - v.shape[-1]))
    out = scaled_dot_product_attention(q, k, padded, is_causal=True, scale=scale)
    return out[..., : v.shape[-1]]
