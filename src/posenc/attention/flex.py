"""Compiled FlexAttention on a CUDA GPU, with a bias of distance alone as one line a head.

A score reads its bias from the line at its distance, so that all encodings share one graph. Where
no graph serves, and the limit of PyTorch's recompilations is reached, `fullgraph` makes that an
error: nothing falls back to eager mode, which would hold every score at once. What flows back to
the line is added up atomically: its last bits differ from run to run.
"""

from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from posenc.attention import toeplitz_bias
from posenc.attention.scores import window_of
from posenc.attention.unsupported import UnsupportedKernelError
from posenc.encodings.base import Encoding

MASKS = 16  # lengths whose masks are kept


def applies(encoding: Encoding, q: Tensor, pos: Tensor) -> str | None:
    """Why not, if there is no GPU here or the encoding is more than a bias of distance."""
    if q.device.type != "cuda":
        return f"FlexAttention trains on a CUDA GPU alone, not on {q.device.type}"
    if q.dtype == torch.float64:
        return "FlexAttention has no float64"
    return toeplitz_bias.applies(encoding, pos)


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it, or UnsupportedKernelError."""
    return with_line(encoding, q, k, v, served(encoding, q, pos))


def served(encoding: Encoding, q: Tensor, pos: Tensor) -> Tensor:
    """The bias by distance [H, T], before anything is compiled; UnsupportedKernelError for none."""
    why = applies(encoding, q, pos)
    found = None if why else toeplitz_bias.line_of(encoding, q, pos)
    if found is None:
        raise UnsupportedKernelError("flex", encoding, why or toeplitz_bias.LOOKS_AT_QUERY)
    return found


def with_line(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Causal attention with a line [H, T] for bias, within the encoding's window."""
    length = q.shape[2]

    def biased(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + bias[head, (query - key).clamp(min=0)]

    return compiled()(
        q,
        k,
        v,
        score_mod=biased if encoding.overrides("bias") else None,
        block_mask=mask(length, window_of(encoding, length), q.device),
        scale=v.shape[-1] ** -0.5,
    )


@cache
def compiled():  # type: ignore[no-untyped-def]
    return torch.compile(flex_attention, fullgraph=True)


@lru_cache(MASKS)
def mask(length: int, window: int, device: torch.device) -> BlockMask:
    """Which blocks of keys the blocks of queries see; compiled, it never holds all pairs."""

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query - key < window)

    made = torch.compile(create_block_mask) if device.type == "cuda" else create_block_mask
    return made(seen, None, None, length, length, device=device)
