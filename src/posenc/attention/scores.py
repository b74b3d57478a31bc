"""What is added to q . k for a block of query rows and the keys that they may see."""

import torch
from torch import Tensor

from posenc.encodings.base import Encoding


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of scores and softmax: float32, or float64 where the inputs have it."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def distances(pos_q: Tensor, pos_k: Tensor, dtype: torch.dtype) -> Tensor:
    """Query minus key [R, K]; for coordinates [B, R, axes], their distance [B, 1, R, K]."""
    if pos_q.ndim == 1:
        return (pos_q[:, None] - pos_k[None, :]).to(dtype)
    exact = "donot_use_mm_for_euclid_dist"  # the product would put a token away from itself
    return torch.cdist(pos_q.double(), pos_k.double(), compute_mode=exact)[:, None].to(dtype)


def seen(rows: slice, keys: slice, window: int | None, device: torch.device) -> Tensor:
    """Which keys each row sees [R, K]: none to come, none further back than the window."""
    query = torch.arange(rows.start, rows.stop, device=device)[:, None]
    key = torch.arange(keys.start, keys.stop, device=device)[None, :]
    causal = key <= query
    return causal if window is None else causal & (query - key < window)


def window_of(encoding: Encoding, length: int) -> int:
    """How many of `length` tokens a query sees at most."""
    return min(encoding.window() or length, length)


def at(pos: Tensor, part: slice) -> Tensor:
    """The positions [R] or coordinates [B, R, axes] of a run of tokens."""
    return pos[part] if pos.ndim == 1 else pos[:, part]


def bias(
    encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, pos: Tensor, rows: slice, keys: slice
) -> Tensor | None:
    """Position and content bias [B|1, H, R, K] of a block, in float32 or wider; None for none."""
    if not (encoding.overrides("bias") or encoding.overrides("content_bias")):
        return None
    dtype = wide(q.dtype)
    head = torch.arange(q.shape[1], device=q.device)[:, None, None]
    pos_q = at(pos, rows)
    query = (
        pos_q[:, None] if pos.ndim == 1 else pos_q.double().norm(dim=-1)[:, None, :, None].to(dtype)
    )
    distance = distances(pos_q, at(pos, keys), dtype)
    positional = encoding.bias(head, distance, query)
    if positional is not None:
        batch = 1 if pos.ndim == 1 else len(pos)
        positional = positional.expand(batch, len(head), *distance.shape[-2:])
    content = encoding.content_bias(x[:, keys], q[:, :, rows], k[:, :, keys], distance, query)
    if content is None or positional is None:
        return positional if content is None else content.to(dtype)
    return content.to(dtype) + positional
