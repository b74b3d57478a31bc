"""Reference attention with an explicit softmax, for any dtype; other kernels must match it."""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.encodings.coordinates import require_1d_positions


class AttentionInputs(NamedTuple):
    """x [B, T, D], q and k [B, H, T, d'], v [B, H, T, d]; positions [T] or [B, T, axes]."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    pos: Tensor


def unsupported_reason(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> None:
    """Return None: every encoding is supported."""


def overridden_hook_reason(encoding: Encoding, *hooks: str) -> str | None:
    """Return a reason to reject an encoding that overrides one of the hooks, else None."""
    return next((f"it overrides {hook}" for hook in hooks if encoding.overrides(hook)), None)


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Return softmax(q . k / sqrt(d) + bias) v + value bias, with all scores in memory.

    The encoding's sink, if it has one, is an additional term in the softmax's denominator. An
    encoding's `normalize` may replace the softmax.
    """
    all_tokens = slice(0, q.shape[2])
    return attend_rows(encoding, AttentionInputs(x, q, k, v, pos), all_tokens, all_tokens)


def attend_rows(encoding: Encoding, inputs: AttentionInputs, rows: slice, keys: slice) -> Tensor:
    """Return the output [B, H, R, d] of the query `rows`; `keys` covers all keys they attend to."""
    pos, dtype = inputs.pos, score_dtype(inputs.q.dtype)
    weights = attention_weights(encoding, attention_scores(encoding, inputs, rows, keys))
    out = weights @ inputs.v[:, :, keys].to(dtype)
    if encoding.overrides("value_bias"):
        distance = pairwise_distances(positions_at(pos, rows), positions_at(pos, keys), dtype)
        value_bias = encoding.value_bias(weights, distance)
        out = out if value_bias is None else out + value_bias
    return out.to(inputs.v.dtype)


def attention_scores(
    encoding: Encoding, inputs: AttentionInputs, rows: slice, keys: slice
) -> Tensor:
    """Return the scores [B, H, R, K] before the softmax; -inf where a key is masked."""
    x, q, k, v, pos = inputs
    dtype = score_dtype(q.dtype)
    queries, block_keys = q[:, :, rows].to(dtype), k[:, :, keys].to(dtype)
    scores = dot_products(encoding, queries, block_keys, pos, rows, keys) * v.shape[-1] ** -0.5
    bias = score_bias(encoding, x, q, k, pos, rows, keys)
    if bias is not None:
        scores = scores + bias
    visible = visible_keys(encoding, rows, keys, q.device)
    return scores.masked_fill(~visible, -torch.inf)


def dot_products(
    encoding: Encoding, q: Tensor, k: Tensor, pos: Tensor, rows: slice, keys: slice
) -> Tensor:
    """Return q . k [B, H, R, K] for q of the query `rows` and k of `keys`.

    If the encoding has several rotations, `rotation_index` selects the one used for each pair.
    """
    index = rotation_index(encoding, pos, rows, keys)
    if index is None:
        return q @ k.mT
    width = encoding.geometry.head_dim
    rotations = zip(q.split(width, dim=-1), k.split(width, dim=-1), strict=True)
    selected, *others = (rotated_q @ rotated_k.mT for rotated_q, rotated_k in rotations)
    for i, products in enumerate(others, start=1):
        selected = torch.where(index == i, products, selected)
    return selected


def rotation_index(encoding: Encoding, pos: Tensor, rows: slice, keys: slice) -> Tensor | None:
    """Return the index [R, K] of each pair's rotation, or None if there is only one rotation."""
    if not encoding.overrides("rotation_index"):
        return None
    return encoding.rotation_index(*rotation_index_arguments(encoding, pos, rows, keys))


def rotation_index_arguments(
    encoding: Encoding, pos: Tensor, rows: slice, keys: slice
) -> tuple[Tensor, Tensor]:
    """Return the positions [R, 1] and [1, K] that `Encoding.rotation_index` is called with.

    Raises ValueError if positions are coordinates.
    """
    relative = require_1d_positions(pos, type(encoding).__name__) - pos[:1]
    return relative[rows, None], relative[None, keys]


def attention_weights(encoding: Encoding, scores: Tensor) -> Tensor:
    """Return the weights [B, H, R, K] of scores; with a sink, their sum is less than 1.

    Raises ValueError if the encoding has a sink and overrides `normalize`.
    """
    sink = encoding.sink()
    if sink is None:
        return encoding.normalize(scores)
    if encoding.overrides("normalize"):
        raise ValueError(f"{type(encoding).__name__} has a sink, which needs the default normalize")
    sink_scores = sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sink_scores], dim=-1).softmax(dim=-1)[..., :-1]


def score_bias(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor, rows: slice, keys: slice
) -> Tensor | None:
    """Return the sum of `bias` and `content_bias` [B or 1, H, R, K], in float32 or wider.

    Returns None if the encoding has neither.
    """
    if not (encoding.overrides("bias") or encoding.overrides("content_bias")):
        return None
    dtype = score_dtype(q.dtype)
    head, distance, pos_q = bias_arguments(q.shape[1], pos, rows, keys, dtype)
    positional = encoding.bias(head, distance, pos_q)
    if positional is not None:
        batch = 1 if pos.ndim == 1 else len(pos)
        positional = positional.expand(batch, len(head), *distance.shape[-2:])
    content = encoding.content_bias(x[:, keys], q[:, :, rows], k[:, :, keys], distance, pos_q)
    if content is None or positional is None:
        return positional if content is None else content.to(dtype)
    return content.to(dtype) + positional


def bias_arguments(
    heads: int, pos: Tensor, rows: slice, keys: slice, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the head indices [H, 1, 1], distances and query positions for `Encoding.bias`.

    For positions [T], distances are [R, K] and query positions [R, 1]. For coordinates
    [B, T, axes], they are [B, 1, R, K] and [B, 1, R, 1], and a query position is the distance of
    the query from the origin.
    """
    head = torch.arange(heads, device=pos.device)[:, None, None]
    row_pos = positions_at(pos, rows)
    distance = pairwise_distances(row_pos, positions_at(pos, keys), dtype)
    if pos.ndim == 1:
        return head, distance, row_pos[:, None]
    return head, distance, row_pos.double().norm(dim=-1)[:, None, :, None].to(dtype)


def score_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision of scores and softmax: float64 for float64 inputs, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def pairwise_distances(pos_q: Tensor, pos_k: Tensor, dtype: torch.dtype) -> Tensor:
    """Return query minus key position [R, K]; for coordinates, the distances [B, 1, R, K]."""
    if pos_q.ndim == 1:
        return (pos_q[:, None] - pos_k[None, :]).to(dtype)
    mode = "donot_use_mm_for_euclid_dist"  # with a matrix product, d(x, x) would not be 0
    return torch.cdist(pos_q.double(), pos_k.double(), compute_mode=mode)[:, None].to(dtype)


def visible_keys(encoding: Encoding, rows: slice, keys: slice, device: torch.device) -> Tensor:
    """Return a mask [R, K] of the keys that each query attends to."""
    row = torch.arange(rows.start, rows.stop, device=device)[:, None]
    key = torch.arange(keys.start, keys.stop, device=device)[None, :]
    visible, window, mask = key <= row, encoding.window(), encoding.mask(row, key)
    if window is not None:
        visible = visible & (row - key < window)
    return visible if mask is None else visible & mask


def window_size(encoding: Encoding, length: int) -> int:
    """Return the maximum number of keys that a query attends to among `length` tokens."""
    return min(encoding.window() or length, length)


def positions_at(pos: Tensor, tokens: slice) -> Tensor:
    """Return the positions [R] or coordinates [B, R, axes] of consecutive tokens."""
    return pos[tokens] if pos.ndim == 1 else pos[:, tokens]
