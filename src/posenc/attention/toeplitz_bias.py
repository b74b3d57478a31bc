"""A bias of distance alone, and a window, as one line of numbers a head."""

import torch
from torch import Tensor

from posenc.attention.scores import wide
from posenc.encodings.base import Encoding

LOOKS_AT_QUERY = "its bias looks at the query's position, undeclared"


def applies(encoding: Encoding, pos: Tensor) -> str | None:
    """Why not, if the encoding is more than a bias of distance and a window at these positions."""
    if encoding.overrides("content_bias") or encoding.overrides("value_bias"):
        return "the encoding acts on what the tokens say"
    if encoding.overrides("bias") and "shift" in encoding.limitations:
        return f"its bias is not one of distance alone: {encoding.limitations['shift']}"
    if pos.ndim > 1 or not torch.equal(pos.diff(), torch.ones_like(pos[1:])):
        return "positions do not follow one another"
    return None


def line_of(encoding: Encoding, q: Tensor, pos: Tensor) -> Tensor | None:
    """The bias [H, T] at distances 0 .. T-1, in float32 or wider.

    None where it is not the same for the first query, one in the middle and the last.
    """
    dtype, length = wide(q.dtype), len(pos)
    head = torch.arange(q.shape[1], device=q.device)[:, None, None]
    distance = torch.arange(length, device=q.device).to(dtype)[None]
    queries = pos[[0, length // 2, -1], None]
    bias = encoding.bias(head, distance, queries)
    table = q.new_zeros((), dtype=dtype) if bias is None else bias
    table = table.expand(len(head), *table.shape[-2:-1] or (1,), length)
    same = torch.equal(table, table[:, :1].expand_as(table))
    return table[:, 0] if same else None
