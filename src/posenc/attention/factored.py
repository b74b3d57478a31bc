"""A bias of exact low rank as columns of queries and keys: plain causal attention does the rest.

Memory is that of plain attention, and so is the kernel. Where the factors grow with length, each
becomes as many columns as the precision needs to hold it; columns that cancel stand first, for
sums lose least there: in float32 the order alone is the difference between 4e-7 and 6e-4.
"""

import torch
from torch import Tensor

from posenc.attention import causal
from posenc.attention.unsupported import UnsupportedKernelError
from posenc.encodings.base import Encoding, Factors

PARTS = {torch.float64: 1, torch.float32: 2, torch.bfloat16: 3}
MULTIPLE = 8  # widths that fused kernels are made for

Column = tuple[int, Tensor | None, Tensor | None]
"""Its place in the order of sums, and what queries and keys have there; None stands for ones."""


def applies(encoding: Encoding, q: Tensor, pos: Tensor) -> str | None:
    """Why not, if the encoding is more than a bias with factors for positions like these."""
    if not encoding.overrides("bias_factors"):
        return "its bias has no factors"
    if encoding.window() is not None or encoding.overrides("value_bias"):
        return "it has a window, or adds to the output"
    if q.dtype not in PARTS:
        return f"{q.dtype} does not hold the factors"
    return "coordinates have no factors" if pos.ndim > 1 else None


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it, or UnsupportedKernelError."""
    why = applies(encoding, q, pos)
    columns = None if why else columns_of(encoding, x, q, pos)
    if columns is None:
        raise UnsupportedKernelError("factored", encoding, why or "it has no factors now")
    return with_columns(q, k, v, columns)


def columns_of(encoding: Encoding, x: Tensor, q: Tensor, pos: Tensor) -> list[Column] | None:
    """The columns of the encoding's factors, those that cancel first; None where it has none."""
    pairs = encoding.bias_factors(x, pos)
    if pairs is None:
        return None
    scale = encoding.geometry.head_width**-0.5
    found = [column for pair in pairs for column in columns_of_pair(pair, q.dtype, scale)]
    return sorted(found, key=lambda column: column[0])


def count(columns: list[Column]) -> int:
    """How much wider the columns make queries and keys."""
    return sum(_width(of_query, of_key) for _, of_query, of_key in columns)


def with_columns(q: Tensor, k: Tensor, v: Tensor, columns: list[Column]) -> Tensor:
    """Causal attention with the products of the columns added to the scores."""
    of_queries, of_keys = [], []
    for _, of_query, of_key in columns:
        shape = (*q.shape[:3], _width(of_query, of_key))
        of_queries.append((q.new_ones(()) if of_query is None else of_query).expand(shape))
        of_keys.append((q.new_ones(()) if of_key is None else of_key).expand(shape))
    nothing = q.new_zeros(()).expand(*q.shape[:3], -(q.shape[-1] + count(columns)) % MULTIPLE)
    wide_q = torch.cat([*of_queries, q, nothing], dim=-1)
    wide_k = torch.cat([*of_keys, k, nothing], dim=-1)
    return causal.with_scale(wide_q, wide_k, v, v.shape[-1] ** -0.5)


def columns_of_pair(pair: Factors, dtype: torch.dtype, scale: float) -> list[Column]:
    """The columns of one pair of factors, divided by the scale.

    Of what the query alone brings, a constant to it, the last part is left out: the others only
    keep sums small.
    """
    of_query, of_key = pair
    if of_key is None:
        assert of_query is not None
        parts = split(of_query / scale, dtype)
        return [(rank, part, None) for rank, part in enumerate(parts[:-1] or parts)]
    if of_query is None:
        return [(rank, None, part) for rank, part in enumerate(split(of_key / scale, dtype))]
    queries, keys = split(of_query / scale, dtype), split(of_key, dtype)
    return [
        (i + j, queries[i], keys[j])
        for i in range(len(queries))
        for j in range(len(keys))
        if i + j < len(queries)
    ]


def split(factor: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Numbers of a precision that add up to the factor; one alone for a bounded factor."""
    parts, rest = [], factor
    for _ in range(PARTS[dtype] if factor.dtype == torch.float64 else 1):
        parts.append(rest.to(dtype))
        rest = (rest - parts[-1]).detach()  # the first part has the whole gradient
    return parts


def _width(of_query: Tensor | None, of_key: Tensor | None) -> int:
    """How many columns stand beside each other, [B|1, H, T, this]."""
    some = of_key if of_query is None else of_query
    assert some is not None
    return some.shape[-1]
