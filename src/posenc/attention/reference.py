"""Explicit softmax: the definition of attention with an encoding, at any precision."""

import torch
from torch import Tensor

from posenc.attention.scores import at, bias, distances, seen, wide
from posenc.encodings.base import Encoding


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """softmax(q . k / sqrt(d) + bias) v + value bias, all scores at once."""
    everything = slice(0, q.shape[2])
    return attend_rows(encoding, x, q, k, v, pos, everything, everything)


def attend_rows(
    encoding: Encoding,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    rows: slice,
    keys: slice,
) -> Tensor:
    """The same for the query `rows`, which see none but `keys`: [B, H, R, d]."""
    dtype = wide(q.dtype)
    weights = scores_of(encoding, x, q, k, v, pos, rows, keys).softmax(dim=-1)
    out = weights @ v[:, :, keys].to(dtype)
    if encoding.overrides("value_bias"):
        mixed = encoding.value_bias(weights, distances(at(pos, rows), at(pos, keys), dtype))
        out = out if mixed is None else out + mixed
    return out.to(v.dtype)


def scores_of(
    encoding: Encoding,
    x: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pos: Tensor,
    rows: slice,
    keys: slice,
) -> Tensor:
    """The scores [B, H, R, K] that softmax is taken of: -inf where a key is not seen."""
    dtype = wide(q.dtype)
    scores = q[:, :, rows].to(dtype) @ k[:, :, keys].to(dtype).mT * v.shape[-1] ** -0.5
    added = bias(encoding, x, q, k, pos, rows, keys)
    if added is not None:
        scores = scores + added
    return scores.masked_fill(~seen(rows, keys, encoding.window(), q.device), -torch.inf)
