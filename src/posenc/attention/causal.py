"""Plain causal attention by PyTorch's fused kernels (FlashAttention on a GPU)."""

from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from posenc.attention.unsupported import UnsupportedKernelError
from posenc.encodings.base import Encoding


def applies(encoding: Encoding, q: Tensor, pos: Tensor) -> str | None:
    """Why not, if the encoding does anything to scores or outputs."""
    acting = [hook for hook in ("bias", "content_bias", "value_bias") if encoding.overrides(hook)]
    if acting or encoding.window() is not None:
        return f"it has a {acting[0] if acting else 'window'}"
    return None


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it, or UnsupportedKernelError."""
    if why := applies(encoding, q, pos):
        raise UnsupportedKernelError("causal", encoding, why)
    return with_scale(q, k, v, v.shape[-1] ** -0.5)


def with_scale(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """softmax(scale q . k) v; values narrower than keys, unless padded, leave the fused kernel."""
    padded = pad(v, (0, q.shape[-1] - v.shape[-1]))
    out = scaled_dot_product_attention(q, k, padded, is_causal=True, scale=scale)
    return out[..., : v.shape[-1]]
