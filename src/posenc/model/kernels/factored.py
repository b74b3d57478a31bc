"""A bias of exact low rank as columns of queries and keys: plain causal attention does the rest.

Memory is that of plain attention, and so is the kernel. Where the factors grow with length, each
becomes as many columns as the precision needs to hold it; columns that cancel stand first, for
sums lose least there: in float32 the order alone is the difference between 4e-7 and 6e-4.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from posenc.encodings.base import Encoding, Factors
from posenc.model.kernels import causal

PARTS = {torch.float64: 1, torch.float32: 2, torch.bfloat16: 3}
MULTIPLE = 8  # widths that fused kernels are made for

Columns = list[tuple[int, Tensor | None, Tensor | None]]


def applies(encoding: Encoding, q: Tensor, pos: Tensor) -> str | None:
    """Why not, if the encoding is more than a bias with factors for positions like these."""
    if not encoding.acts("bias_factors"):
        return "its bias has no factors"
    if encoding.window() is not None or encoding.acts("mix"):
        return "it has a window, or adds to the output"
    if q.dtype not in PARTS:
        return f"{q.dtype} does not hold the factors"
    return "coordinates have no factors" if pos.ndim > 1 else None


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it; ValueError where the kernel does not apply."""
    why = applies(encoding, q, pos)
    pairs = None if why else encoding.bias_factors(x, pos)
    if pairs is None:
        name = type(encoding).__name__
        raise ValueError(f"kernel=factored cannot serve {name}: {why or 'it has no factors now'}")
    return with_factors(q, k, v, pairs)


def with_factors(q: Tensor, k: Tensor, v: Tensor, pairs: list[Factors]) -> Tensor:
    """Causal attention with the products of the factors added to the scores."""
    scale = v.shape[-1] ** -0.5
    found = [column for pair in pairs for column in columns(pair, q.dtype, scale)]
    found.sort(key=lambda column: column[0])
    of_queries = [_like(q, of_query, of_key) for _, of_query, of_key in found]
    of_keys = [_like(q, of_key, of_query) for _, of_query, of_key in found]
    wide_q, wide_k = torch.cat([*of_queries, q], dim=-1), torch.cat([*of_keys, k], dim=-1)
    missing = (0, -wide_q.shape[-1] % MULTIPLE)
    return causal.with_scale(pad(wide_q, missing), pad(wide_k, missing), v, scale)


def columns(pair: Factors, dtype: torch.dtype, scale: float) -> Columns:
    """The columns of one pair, each with its rank in the order of sums; None stands for ones.

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


def _like(q: Tensor, column: Tensor | None, other: Tensor | None) -> Tensor:
    """A column [B, H, T, r] for queries or keys; ones beside the other where there is None."""
    if column is None:
        assert other is not None
        return q.new_ones(()).expand(*q.shape[:3], other.shape[-1])
    return column.expand(*q.shape[:3], -1)


def product(pairs: list[Factors]) -> Tensor:
    """The bias [B|1, H, T, T] that factors stand for, up to a constant per query."""
    found = []
    for of_query, of_key in pairs:
        some = of_key if of_query is None else of_query
        assert some is not None
        queries, keys = (torch.ones_like(some) if f is None else f for f in (of_query, of_key))
        found.append(queries @ keys.mT)
    return torch.stack(found).sum(0)


def count(pairs: list[Factors], dtype: torch.dtype) -> int:
    """How many columns the factors become."""
    widths = [next(f for f in pair if f is not None).shape[-1] for pair in pairs]
    parts = [len(columns(pair, dtype, 1.0)) for pair in pairs]
    return sum(width * part for width, part in zip(widths, parts, strict=True))
