"""Attention with a low-rank bias, which is a product of query factors and key factors.

The bias is Q_i . K_j up to a per-query constant, where Q and K have few columns. The factors often
grow with sequence length, while the bias for the keys that matter, Q_i . (K_j - K_i), is small. On
a CPU, `factored_blocks` computes the differences before it rounds them. On a GPU, where this
kernel supports only bfloat16, the factors become extra columns of queries and keys in plain causal
attention, with several bfloat16 columns per factor. This adds less error than rounding queries and
keys to bfloat16.
"""

import torch
from torch import Tensor

from posenc.attention import UnsupportedKernelError
from posenc.attention.causal import causal_attention
from posenc.attention.factored_blocks import low_rank_attention
from posenc.attention.fused_sdpa import HEAD_DIM_MULTIPLE
from posenc.attention.reference import overridden_hook_reason
from posenc.encodings.base import Encoding, Factors
from posenc.encodings.wrapper import Wrapper

NUM_PARTS = 3
"""The number of bfloat16 values that represent a number with 24 bits of precision, like float32."""


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why this kernel does not support the encoding, or None if it does.

    It supports encodings whose only effect on attention scores is a factored bias, apart from
    changes to queries and keys.
    """
    if encoding.window() is not None:
        return "it has a window"
    if device.type != "cpu" and dtype != torch.bfloat16:
        return "on a GPU, the kernel requires bfloat16"
    return not_factorable_reason(encoding, pos)


def not_factorable_reason(encoding: Encoding, pos: Tensor) -> str | None:
    """Return why attention cannot be computed from the factors of the bias, or None if it can."""
    if not encoding.overrides("bias_factors"):
        return "its bias does not factorize"
    if hook := _hook_without_factors(encoding):
        return f"a class overrides `{hook}`, but not `bias_factors`"
    hooks = ("rotation_index", "normalize", "value_bias", "mask")
    if reason := overridden_hook_reason(encoding, *hooks):
        return reason
    if encoding.overrides("sink"):
        return "it has a sink, and its factors give the scores only up to a per-query constant"
    if pos.ndim > 1:
        return "the kernel does not support coordinates"
    return (
        None if sample_factors(encoding, pos) else "its bias does not factorize with these settings"
    )


def _hook_without_factors(encoding: Encoding) -> str | None:
    """Return a hook that a subclass overrides although it inherits `bias_factors`, or None.

    The inherited factors then no longer match its bias.
    """
    classes = type(encoding).__mro__
    defines_factors = next(i for i, c in enumerate(classes) if "bias_factors" in vars(c))
    hooks = ("bias", "content_bias", "coefficients", "formula")
    for cls in classes[:defines_factors]:
        if overridden := [hook for hook in hooks if hook in vars(cls)]:
            return overridden[0]
    return _hook_without_factors(encoding.active) if isinstance(encoding, Wrapper) else None


def slow_reason(encoding: Encoding, device: torch.device, pos: Tensor) -> str | None:
    """Return why `blocks` is faster, which is if the factors have more channels than a head."""
    factors = sample_factors(encoding, pos)
    assert factors is not None
    query_factors, key_factors = factors
    columns, width = key_factors.shape[-1], encoding.geometry.head_dim
    if device.type != "cpu":
        products = NUM_PARTS if query_factors is None else NUM_PARTS * (NUM_PARTS + 1) // 2
        columns = columns * products + NUM_PARTS - 1
    if columns <= width:
        return None
    return f"its factors have {columns} channels, more than the {width} of a head"


@torch.no_grad()
def sample_factors(encoding: Encoding, pos: Tensor) -> Factors | None:
    """Return the factors of one token; their rank is the same for every token.

    The token's hidden state, query and key are zero; they are not rotated, because rotating may
    draw random numbers.
    """
    geometry = encoding.geometry
    x = torch.zeros(1, 1, geometry.width, device=pos.device)
    states = torch.zeros(1, geometry.heads, 1, geometry.head_dim, device=pos.device)
    return encoding.bias_factors(x, states, states, pos[:1])


def bias_factors(
    kernel: str, encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor
) -> Factors:
    """Return the encoding's factors for this input.

    Raises UnsupportedKernelError if there are none, although `sample_factors` returned some.
    """
    factors = encoding.bias_factors(x, q, k, pos)
    if factors is None:
        reason = "its bias does not factorize for this input"
        raise UnsupportedKernelError(kernel, encoding, reason)
    return factors


def attend(
    encoding: Encoding,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    device: torch.device | None = None,
) -> Tensor:
    """Compute the same attention output as `reference.attend`.

    `device` selects the implementation, by default that for the device of q. Raises
    UnsupportedKernelError if the bias of this input does not factorize.
    """
    query_factors, key_factors = bias_factors("factored", encoding, x, q, k, pos)
    shape = (*q.shape[:3], -1)
    query_factors = None if query_factors is None else query_factors.double().expand(shape)
    key_factors = key_factors.double().expand(shape)
    on_cpu = (device or q.device).type == "cpu"
    attention = low_rank_attention if on_cpu else attend_with_extra_columns
    return attention(q, k, v, query_factors, key_factors)


def attend_with_extra_columns(
    q: Tensor, k: Tensor, v: Tensor, query_factors: Tensor | None, key_factors: Tensor
) -> Tensor:
    """Return causal attention with factors [B, H, T, r] as additional columns of q and k.

    The key factors of the last token are subtracted from all key factors. A constant per query,
    which does not change the softmax, keeps the scores small. Columns with the largest products
    come first, so that they cancel before anything else is added.
    """
    scale = v.shape[-1] ** -0.5
    key_factors = (key_factors - key_factors[:, :, -1:]) / scale
    ones = torch.ones_like(key_factors[..., :1])
    self_bias = key_factors if query_factors is None else query_factors * key_factors
    constant = split_bfloat16(-self_bias.sum(-1, keepdim=True))
    columns = [(order, part, ones) for order, part in enumerate(constant[: NUM_PARTS - 1])]
    query_parts = [ones] if query_factors is None else split_bfloat16(query_factors)
    key_parts = split_bfloat16(key_factors)
    for i, query_part in enumerate(query_parts):
        columns += [(i + j, query_part, key_parts[j]) for j in range(NUM_PARTS - i)]
    columns.sort(key=lambda column: column[0])
    width = q.shape[-1] + sum(part.shape[-1] for _, _, part in columns)
    padding = q.new_zeros(()).expand(*q.shape[:3], -width % HEAD_DIM_MULTIPLE)
    wide_q = torch.cat([*(part.to(q.dtype) for _, part, _ in columns), q, padding], dim=-1)
    wide_k = torch.cat([*(part.to(q.dtype) for _, _, part in columns), k, padding], dim=-1)
    return causal_attention(wide_q, wide_k, v, scale)


def split_bfloat16(factors: Tensor) -> list[Tensor]:
    """Return bfloat16 parts that approximate `factors` to 24 bits; the first has the gradient."""
    parts, remainder = [], factors
    for _ in range(NUM_PARTS):
        parts.append(remainder.bfloat16())
        remainder = (remainder - parts[-1]).detach()
    return parts
