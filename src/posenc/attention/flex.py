"""Compiled FlexAttention on a CUDA GPU, for windows and biases that depend only on distance.

The bias of each score is looked up in `bias_by_distance`, so that all encodings share one graph.
`fullgraph` turns PyTorch's limit on recompilations into an error; without it, PyTorch would fall
back to eager mode, which keeps all scores in memory. The gradient of the bias is summed with atomic
additions, so its last bits differ from run to run.
"""

from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from posenc.attention.reference import window_size
from posenc.attention.toeplitz import reason_not_toeplitz
from posenc.encodings.base import Encoding

CACHED_MASKS = 16
MIN_HEAD_WIDTH = 16
"""Narrower heads do not compile in PyTorch 2.13."""


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it does."""
    if device.type != "cuda":
        return f"FlexAttention trains only on a CUDA GPU, not on {device.type}"
    if dtype == torch.float64:
        return "FlexAttention does not support float64"
    if encoding.geometry.head_width < MIN_HEAD_WIDTH:
        return f"FlexAttention compiles for heads of at least {MIN_HEAD_WIDTH} channels"
    return reason_not_toeplitz(encoding, pos)


def attend(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor, bias: Tensor
) -> Tensor:
    """Return attention as `reference.attend` defines it; `bias` is the `bias_by_distance`."""
    length = q.shape[2]

    def score_mod(
        score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return score + bias[head, (q_idx - kv_idx).clamp(min=0)]

    return compiled_flex_attention()(
        q,
        k,
        v,
        score_mod=score_mod if encoding.overrides("bias") else None,
        block_mask=block_mask(length, window_size(encoding, length), q.device),
        scale=v.shape[-1] ** -0.5,
    )


@cache
def compiled_flex_attention():  # type: ignore[no-untyped-def]
    return torch.compile(flex_attention, fullgraph=True)


@lru_cache(CACHED_MASKS)
def block_mask(length: int, window: int, device: torch.device) -> BlockMask:
    """Return which blocks of keys each block of queries attends to."""

    def visible(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx <= q_idx) & (q_idx - kv_idx < window)

    create = torch.compile(create_block_mask) if device.type == "cuda" else create_block_mask
    return create(visible, None, None, length, length, device=device)
