"""Compiled FlexAttention on a CUDA GPU, with an optional window, sink and bias.

There are three kinds of bias:

Formula    The encoding defines its bias by a formula (`FormulaBias`), and no gradient of the
           coefficients is needed: the kernel evaluates the formula for each score.
Table      Any other bias that depends only on distance is read from `bias_by_distance`; a learnable
           one gets its gradient from `bias_gradient`.
Factors    A bias that depends on token content and has few `bias_factors`, such as the cumulative
           gates of FoX and CABLE, is computed from them for each score. FlexAttention accumulates
           their gradient with atomic additions, so it is not bit-reproducible.

With `fullgraph`, exceeding PyTorch's recompilation limit is an error; without it, PyTorch would
fall back to eager mode, which materializes the full score matrix. Sequences are padded to a
multiple of BLOCK_SIZE, so that few distinct lengths have to be compiled; the mask hides the
padding, which comes after all queries.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
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

from posenc.attention.bias_gradient import BiasGradient
from posenc.attention.factored import bias_factors, not_factorable_reason, sample_factors
from posenc.attention.reference import score_dtype, window_size
from posenc.attention.toeplitz import not_toeplitz_reason
from posenc.encodings.base import Encoding, Factors
from posenc.encodings.formula_bias import FormulaBias
from posenc.encodings.wrapper import Wrapper

BLOCK_SIZE = 128
CACHED_MASKS = 16
MAX_FACTORS = 4
"""More factors per query and key would take longer to read than the scores take to compute."""
MIN_HEAD_DIM = 16
"""Narrower heads do not compile in PyTorch 2.13."""
RECOMPILE_LIMIT = 64
"""Each combination of formula, data type and head dimension needs a graph.

PyTorch's default limit is 8.
"""

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> str | None:
    """Return why the kernel does not support the encoding, or None if it does."""
    if device.type != "cuda":
        return f"FlexAttention supports training only on CUDA GPUs, not on {device.type}"
    if dtype == torch.float64:
        return "FlexAttention does not support float64"
    if encoding.geometry.head_dim < MIN_HEAD_DIM:
        return f"FlexAttention requires a head dimension of at least {MIN_HEAD_DIM} channels"
    if encoding.overrides("content_bias"):
        return not_factorable_reason(encoding, pos) or _too_many_factors_reason(encoding, pos)
    return not_toeplitz_reason(encoding, pos)


def _too_many_factors_reason(encoding: Encoding, pos: Tensor) -> str | None:
    factors = sample_factors(encoding, pos)
    assert factors is not None
    rank = factors[1].shape[-1]
    return f"its bias has {rank} factors, more than {MAX_FACTORS}" if rank > MAX_FACTORS else None


def needs_bias_by_distance(encoding: Encoding) -> bool:
    """Return whether the kernel reads the bias from `bias_by_distance`."""
    if not encoding.overrides("bias") or encoding.overrides("content_bias"):
        return False
    source = formula_source(encoding)
    return source is None or (
        torch.is_grad_enabled() and any(p.requires_grad for p in source.parameters())
    )


def formula_source(encoding: Encoding) -> FormulaBias | None:
    """Return the `FormulaBias` that defines the bias, possibly inside wrappers, or None.

    Returns None if a wrapper or a subclass overrides the bias.
    """
    while isinstance(encoding, Wrapper) and type(encoding).bias is Wrapper.bias:
        encoding = encoding.active
    is_formula = isinstance(encoding, FormulaBias) and type(encoding).bias is FormulaBias.bias
    return encoding if is_formula else None


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
    """Return the same output as `reference.attend`.

    `bias` is the result of `bias_by_distance` if the encoding `needs_bias_by_distance`; `options`
    are the `kernel_options` of `flex_attention`.
    """
    length = q.shape[2]
    score_mod = build_score_mod(encoding, x, q, k, pos, bias)
    if padding := -length % BLOCK_SIZE:
        q, k, v = (pad(tensor, (0, 0, 0, padding)) for tensor in (q, k, v))
        bias = bias if bias is None else pad(bias, (0, padding))
    window = window_size(encoding, q.shape[2])
    scale = v.shape[-1] ** -0.5
    sink, needs_gradient = encoding.sink(), bias is not None and bias.requires_grad
    result = compiled_flex_attention()(
        q,
        k,
        v,
        score_mod=score_mod,
        block_mask=block_mask(q.shape[2], window, q.device),
        scale=scale,
        kernel_options=dict(options) if options else None,
        return_aux=AuxRequest(lse=True) if needs_gradient or sink is not None else None,
    )
    if not isinstance(result, tuple):
        return result[:, :, :length]
    out, lse = result[0], result[1].lse
    if bias is not None and needs_gradient:
        out, lse = BiasGradient.apply(out, lse, bias, q, k, v, window, scale)
    if sink is not None:
        out = (out * (lse - sink[:, None]).sigmoid()[..., None]).to(out.dtype)
    return out[:, :, :length]


def build_score_mod(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor, bias: Tensor | None
) -> ScoreMod | None:
    """Return a function that adds the bias to a score, or None if the encoding has no bias.

    The function also accepts the indices of the padding, which extends the sequence to a multiple
    of BLOCK_SIZE; the scores of the padding are masked.
    """
    padding = -q.shape[2] % BLOCK_SIZE
    if bias is not None:
        return bias_score_mod(pad(bias.detach(), (0, padding)))
    if encoding.overrides("content_bias"):
        factors = bias_factors("flex", encoding, x, q, k, pos)
        return factor_score_mod(factors, q.shape[:2], padding)
    source = formula_source(encoding)
    if source is None:
        return None
    like = torch.empty((), dtype=score_dtype(q.dtype), device=q.device)
    return formula_score_mod(source.formula, source.coefficients(like))


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


def factor_score_mod(factors: Factors, batch_shape: torch.Size, padding: int) -> ScoreMod:
    """Return a function that adds the bias Q_i . (K_j - K_i) of query i and key j to a score.

    This is the bias up to a constant per query. Key factors can grow with position, so each is
    split into two float32 values, which are subtracted separately; only the larger one has a
    gradient. `batch_shape` is (B, H).
    """
    columns = factor_columns(factors, batch_shape, padding)

    def score_mod(
        score: Tensor, batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        for query, *parts in columns:
            difference = sum(p[batch, head, kv_idx] - p[batch, head, q_idx] for p in parts)
            score = score + query[batch, head, q_idx] * difference
        return score

    return score_mod


def factor_columns(factors: Factors, batch_shape: torch.Size, padding: int) -> list[list[Tensor]]:
    """Return, for each factor, the query factor and both parts of the key factor, [B, H, T']."""
    query_factors, key_factors = factors
    if query_factors is None:
        query_factors = torch.ones_like(key_factors)
    large = key_factors.float()
    small = (key_factors.detach() - large.detach()).float()
    return [
        [
            pad(part[..., c].expand(*batch_shape, -1), (0, padding))
            for part in (query_factors.float(), large, small)
        ]
        for c in range(key_factors.shape[-1])
    ]


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

    mask_mod = within_window if window < length else causal_mask_mod
    create = torch.compile(create_block_mask) if device.type == "cuda" else create_block_mask
    return create(mask_mod, None, None, length, length, device=device, BLOCK_SIZE=BLOCK_SIZE)


def causal_mask_mod(batch: Tensor, head: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return kv_idx <= q_idx
