"""How much of a score each rotary frequency carries (Barbero et al. 2024, 2410.06205).

q_i . k_j / sqrt(d) = sum over frequencies g of s_g(i, j), the products of the channels that turn
with g. Channels that do not turn are one more, of frequency 0. Two shares of each g:

    norm       the mean of |q_i^g| |k_j^g| over the keys that are seen, the bound of Cauchy and
               Schwarz on s_g that Barbero et al. plot by its two factors; shares of the sum over g
    variation  sum_ij s_g(i, j) c(i, j) / sum_ij c(i, j)^2, with c(i, j) the whole product less its
               mean over the keys of query i: what the softmax sees of it. Sums to 1 over g;
               below 0 where a frequency works against the others
"""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.encodings.pope import Pope
from posenc.encodings.rope import Rope
from posenc.encodings.wrapper import Wrapper
from posenc.inspect.run.watch import Rows


class Turning(NamedTuple):
    """`frequencies` [G] in radians per token, and the number of that of each channel [d']."""

    frequencies: Tensor
    group: Tensor


def innermost(encoding: Encoding) -> Encoding:
    """What acts in a layer, out of whatever is around it."""
    while isinstance(encoding, Wrapper):
        encoding = encoding.active
    return encoding


def turning(encoding: Encoding, length: int) -> Turning | None:
    """How the queries and keys of a layer turn in windows of `length`; None where they do not."""
    found = innermost(encoding)
    if not isinstance(found, Rope | Pope):
        return None
    angles, _ = found.sinusoids.angles(torch.arange(length))
    frequencies = (angles[-1] - angles[-2])[0].detach()
    pair = torch.arange(len(frequencies))
    if isinstance(found, Pope) or found.layout == "half":
        group = pair.repeat(2)
    else:
        group = pair.repeat_interleave(2)
    resting = found.geometry.head_width - found.rotary_dim if isinstance(found, Rope) else 0
    if resting:
        group = torch.cat([group, torch.full((resting,), len(frequencies))])
        frequencies = torch.cat([frequencies, torch.zeros(1)])
    return Turning(frequencies, group)


class Frequencies:
    """Sums over pairs for each frequency of a layer, `norm` and `variation` [H, G]."""

    def __init__(self, layer: int, heads: int, turning: Turning) -> None:
        self.layer, self.turning = layer, turning
        shape = heads, len(turning.frequencies)
        self.norm, self.variation = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))

    def see(self, rows: Rows) -> None:
        if rows.layer.index != self.layer:
            return
        scale = rows.layer.v.shape[-1] ** -0.5
        q = rows.layer.q[:, :, rows.rows].double()
        k = rows.layer.k[:, :, rows.keys].double()
        seen = rows.seen.double()
        bound = self._norms(q) * (seen @ self._norms(k))
        self.norm += scale * bound.sum((0, 2)).cpu()
        products = scale * (q @ k.mT)
        mean = (products * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
        by_channel = scale * (q * ((products - mean) * seen @ k)).sum((0, 2)).cpu()
        self.variation.index_add_(1, self.turning.group, by_channel)

    def _norms(self, x: Tensor) -> Tensor:
        """The norm of each frequency's channels, [B, H, T, G] of x [B, H, T, d']."""
        squares = x.new_zeros(*x.shape[:-1], len(self.turning.frequencies))
        return squares.index_add_(-1, self.turning.group.to(x.device), x.square()).sqrt()

    def shares(self) -> tuple[Tensor, Tensor]:
        """Of the norm and of the variation [H, G], each summing to 1."""
        return tuple(of / of.sum(-1, keepdim=True) for of in (self.norm, self.variation))  # type: ignore[return-value]
