"""Attention with a bias of low rank: the product of factors of queries and keys.

The bias is Q_i . K_j up to a constant per query, with few columns. The factors often grow with
length, while the bias of the keys that matter, Q_i . (K_j - K_i), is small. On a CPU
`factored_blocks` forms the differences before it rounds them. On a GPU the factors become extra
columns of queries and keys in plain causal attention, as many as bfloat16 needs to represent them.
This adds less error than rounding queries and keys to bfloat16 does; float32 is not supported.
"""

import torch
from torch import Tensor

from posenc.attention import UnsupportedKernelError
from posenc.attention.causal import causal_attention
from posenc.attention.factored_blocks import low_rank_attention
from posenc.attention.fused_sdpa import WIDTH_MULTIPLE
from posenc.encodings.base import Encoding, Factors

PARTS = 3
"""The number of bfloat16 values that represent a factor: 24 bits, as in float32."""


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return a reason if the encoding has more than a bias with factors at these positions."""
    if not encoding.overrides("bias_factors"):
        return "its bias has no factors"
    if encoding.overrides("value_bias"):
        return "it has a value_bias"
    if encoding.window() is not None:
        return "it has a window"
    if pos.ndim > 1:
        return "a bias of coordinates has no factors"
    if device.type != "cpu" and dtype != torch.bfloat16:
        return "on a GPU it is accurate only in bfloat16"
    return None if sample_factors(encoding, pos) else "its bias currently has no factors"


def num_columns(encoding: Encoding, device: torch.device, pos: Tensor) -> int:
    """Return how many columns the factors of a supported encoding have on a device."""
    factors = sample_factors(encoding, pos)
    assert factors is not None
    query, key = factors
    if device.type == "cpu":
        return key.shape[-1]
    products = PARTS if query is None else PARTS * (PARTS + 1) // 2
    return key.shape[-1] * products + PARTS - 1


@torch.no_grad()
def sample_factors(encoding: Encoding, pos: Tensor) -> Factors | None:
    """Return the factors of a single token of zeros, which have the rank of any token's."""
    x = torch.zeros(1, 1, encoding.geometry.width, device=pos.device)
    return encoding.bias_factors(x, pos[:1])


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Return attention as `reference.attend` defines it, or raise UnsupportedKernelError."""
    reason = unsupported_reason(encoding, q.device, q.dtype, pos)
    factors = None if reason else encoding.bias_factors(x, pos)
    if factors is None:
        raise UnsupportedKernelError(
            "factored", encoding, reason or "its bias has no factors for this input"
        )
    query, key = factors
    shape = (*q.shape[:3], -1)
    query = None if query is None else query.double().expand(shape)
    key = key.double().expand(shape)
    if q.device.type == "cpu":
        return low_rank_attention(q, k, v, query, key)
    return attend_with_columns(q, k, v, query, key)


def attend_with_columns(
    q: Tensor, k: Tensor, v: Tensor, query: Tensor | None, key: Tensor
) -> Tensor:
    """Return causal attention with the products of factors [B, H, T, r] as columns of q and k.

    The factors of the keys are measured from the last token. A constant per query, which does not
    change the softmax, keeps the scores small. Columns with the largest products come first, so
    that they cancel before anything else is added.
    """
    scale = v.shape[-1] ** -0.5
    key = (key - key[:, :, -1:]) / scale
    ones = torch.ones_like(key[..., :1])
    constant = -(key if query is None else query * key).sum(-1, keepdim=True)
    columns = [(order, part, ones) for order, part in enumerate(split(constant)[: PARTS - 1])]
    queries, keys = [ones] if query is None else split(query), split(key)
    for i, query_part in enumerate(queries):
        columns += [(i + j, query_part, keys[j]) for j in range(PARTS - i)]
    columns.sort(key=lambda column: column[0])
    width = q.shape[-1] + sum(part.shape[-1] for _, _, part in columns)
    padding = q.new_zeros(()).expand(*q.shape[:3], -width % WIDTH_MULTIPLE)
    wide_q = torch.cat([*(part.to(q.dtype) for _, part, _ in columns), q, padding], dim=-1)
    wide_k = torch.cat([*(part.to(q.dtype) for _, _, part in columns), k, padding], dim=-1)
    return causal_attention(wide_q, wide_k, v, scale)


def split(factor: Tensor) -> list[Tensor]:
    """Return bfloat16 parts that sum to the factor; the first carries its whole gradient."""
    parts, rest = [], factor
    for _ in range(PARTS):
        parts.append(rest.bfloat16())
        rest = (rest - parts[-1]).detach()
    return parts
