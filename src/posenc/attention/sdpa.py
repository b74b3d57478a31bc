"""Every encoding through PyTorch's scaled dot-product attention, by the cheapest way it allows.

| encoding | way |
| --- | --- |
| neither bias, window nor weights | `causal`, the fused kernel as it is |
| a bias of distance alone or a window, on a CPU | `lines`, as fast, and no mask is made |
| a bias with factors, of no more columns than the values | `factored`, a few columns more |
| anything else | `blocks`, biases of one block of rows at a time |
"""

from typing import NamedTuple

from torch import Tensor

from posenc.attention import blocks, causal, factored, toeplitz, toeplitz_bias
from posenc.encodings.base import Encoding


class Way(NamedTuple):
    """The name of a kernel, why it is no cheaper one, and what was formed to find that out."""

    name: str
    why: str = ""
    line: Tensor | None = None
    columns: list[factored.Column] | None = None


def choose(encoding: Encoding, x: Tensor, q: Tensor, pos: Tensor) -> Way:
    """The way that the table gives to an encoding at these positions."""
    told = causal.applies(encoding, q, pos)
    if told is None:
        return Way("causal")
    why = f"not causal: {told}"
    told = toeplitz.applies(encoding, q, pos)
    bias = None if told else toeplitz_bias.line_of(encoding, q, pos)
    if bias is not None:
        return Way("lines", why, line=bias)
    why += f"; not lines: {told or toeplitz_bias.LOOKS_AT_QUERY}"
    told = factored.applies(encoding, q, pos)
    columns = None if told else factored.columns_of(encoding, x, q, pos)
    if columns is not None and factored.count(columns) <= encoding.geometry.head_width:
        return Way("factored", why, columns=columns)
    return Way("blocks", f"{why}; not factored: {told or 'it would take too many columns'}")


def attend(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor) -> Tensor:
    """Attention as `reference.attend` defines it."""
    way = choose(encoding, x, q, pos)
    if way.name == "causal":
        return causal.attend(encoding, x, q, k, v, pos)
    if way.line is not None:
        return toeplitz.with_line(encoding, q, k, v, way.line)
    if way.columns is not None:
        return factored.with_columns(q, k, v, way.columns)
    return blocks.attend(encoding, x, q, k, v, pos)
