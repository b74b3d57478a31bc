"""Compiled FlexAttention on a CUDA GPU, for windows and biases that depend only on distance.

If the encoding defines its bias by a formula (`FormulaBias`) and no gradient of its coefficients is
needed, the kernel evaluates the formula for each score. Any other bias is read from
`bias_by_distance`. The gradient of a learnable bias is accumulated with atomic additions, so it is
not bit-reproducible.

`fullgraph` turns PyTorch's limit on recompilations into an error; without it, PyTorch would fall
back to eager mode, which materializes the full score matrix. Sequences are padded to whole blocks,
so that few distinct lengths have to be compiled; the mask hides the padding, which comes after all
queries.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)
from torch.nn.functional import pad

from posenc.attention.reference import score_dtype, window_size
from posenc.attention.toeplitz import reason_not_toeplitz
from posenc.encodings.base import Encoding
from posenc.encodings.formula_bias import FormulaBias
from posenc.encodings.wrapper import Wrapper

BLOCK_SIZE = 128
CACHED_MASKS = 16
MIN_HEAD_WIDTH = 16
"""Narrower heads do not compile in PyTorch 2.13."""
RECOMPILE_LIMIT = 64
"""Each formula, data type and head width needs a graph; PyTorch's default limit is 8."""

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it does."""
    if device.type != "cuda":
        return f"FlexAttention supports training only on CUDA GPUs, not on {device.type}"
    if dtype == torch.float64:
        return "FlexAttention does not support float64"
    if encoding.geometry.head_width < MIN_HEAD_WIDTH:
        return f"FlexAttention requires a head width of at least {MIN_HEAD_WIDTH} channels"
    return reason_not_toeplitz(encoding, pos)


def needs_bias_by_distance(encoding: Encoding) -> bool:
    """Return whether the kernel reads the bias from `bias_by_distance`."""
    if not encoding.overrides("bias"):
        return False
    source = formula_source(encoding)
    return source is None or (
        torch.is_grad_enabled() and any(p.requires_grad for p in source.parameters())
    )


def formula_source(encoding: Encoding) -> FormulaBias | None:
    """Return the `FormulaBias` that defines the bias, possibly inside wrappers, or None.

    Returns None if a wrapper changes the bias of its inner encoding.
    """
    while isinstance(encoding, Wrapper) and type(encoding).bias is Wrapper.bias:
        encoding = encoding.active
    return encoding if isinstance(encoding, FormulaBias) else None


def attend(
    encoding: Encoding,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    bias: Tensor | None = None,
    options: Mapping[str, Any] | None = None,
) -> Tensor:
    """Return the output of `reference.attend`.

    `bias` is the result of `bias_by_distance` if the encoding `needs_bias_by_distance`; `options`
    are the `kernel_options` of `flex_attention`.
    """
    length = q.shape[2]
    padding = -length % BLOCK_SIZE
    if padding:
        q, k, v = (pad(tensor, (0, 0, 0, padding)) for tensor in (q, k, v))
    if bias is not None:
        score_mod: ScoreMod | None = bias_score_mod(pad(bias, (0, padding)))
    elif (source := formula_source(encoding)) is not None:
        like = torch.empty((), dtype=score_dtype(q.dtype), device=q.device)
        score_mod = formula_score_mod(source.formula, source.coefficients(like))
    else:
        score_mod = None
    padded = length + padding
    kernel_options: Any = dict(options) if options else None
    call = partial(
        compiled_flex_attention(),
        *(q, k, v),
        score_mod=score_mod,
        block_mask=block_mask(padded, window_size(encoding, padded), q.device),
        scale=v.shape[-1] ** -0.5,
        kernel_options=kernel_options,
    )
    sink = encoding.sink()
    if sink is None:
        return call()[:, :, :length]
    out, aux = call(return_aux=AuxRequest(lse=True))
    out = (out * (aux.lse - sink[:, None]).sigmoid()[..., None]).to(out.dtype)
    return out[:, :, :length]


def formula_score_mod(formula: Callable[..., Tensor], coefficients: tuple[Tensor, ...]) -> ScoreMod:
    """Return a function that adds the formula's bias to a score."""
    dtype = coefficients[0].dtype

    def score_mod(
        score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return score + formula((q_idx - kv_idx).to(dtype), *(c[head] for c in coefficients))

    return score_mod


def bias_score_mod(bias: Tensor) -> ScoreMod:
    """Return a function that adds the bias [H, T] at the distance of a query and a key."""

    def score_mod(
        score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return score + bias[head, (q_idx - kv_idx).clamp(min=0)]

    return score_mod


@cache
def compiled_flex_attention() -> Callable[..., Any]:
    limit = torch._dynamo.config.recompile_limit
    torch._dynamo.config.recompile_limit = max(limit, RECOMPILE_LIMIT)
    return torch.compile(flex_attention, fullgraph=True)


@lru_cache(CACHED_MASKS)
def block_mask(length: int, window: int, device: torch.device) -> BlockMask:
    """Return which blocks of keys each block of queries attends to."""

    def within_window(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx <= q_idx) & (q_idx - kv_idx < window)

    visible = within_window if window < length else causal
    create = torch.compile(create_block_mask) if device.type == "cuda" else create_block_mask
    return create(visible, None, None, length, length, device=device, BLOCK_SIZE=BLOCK_SIZE)


def causal(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return kv_idx <= q_idx
