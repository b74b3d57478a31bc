"""The contribution of each rotary frequency to scores (Barbero et al. 2024, 2410.06205).

q_i . k_j / sqrt(d) is the sum over frequencies g of s_g(i, j), the products of the channels that g
rotates; channels that are not rotated have frequency 0. Two fractions for each g:

    norm       the mean of |q_i^g| |k_j^g| over the keys that a query attends to, the Cauchy-Schwarz
               bound on s_g, divided by its sum over g
    variation  sum_ij s_g(i, j) c(i, j) / sum_ij c(i, j)^2, where c(i, j) is the whole product minus
               its mean over the keys of query i, to which the softmax is invariant. It sums to 1
               over g and is below 0 where a frequency counteracts the others
"""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.encodings.pope import Pope
from posenc.encodings.rope import Rope
from posenc.encodings.wrapper import Wrapper
from posenc.inspect.run.observe import QueryBlock, Row


class RotaryChannels(NamedTuple):
    """`frequencies` [G] in radians per token, and the index of the frequency of each channel."""

    frequencies: Tensor
    group: Tensor


def innermost(encoding: Encoding) -> Encoding:
    """Return the encoding that is active inside any wrappers."""
    while isinstance(encoding, Wrapper):
        encoding = encoding.active
    return encoding


def rotary_channels(encoding: Encoding, length: int) -> RotaryChannels | None:
    """Return how a layer rotates in windows of `length`; None if it does not."""
    rotary = innermost(encoding)
    if not isinstance(rotary, Rope | Pope):
        return None
    angles, _ = rotary.sinusoids.angles(torch.arange(length))
    frequencies = (angles[-1] - angles[-2])[0].detach()
    pair = torch.arange(len(frequencies))
    if isinstance(rotary, Pope) or rotary.layout == "half":
        group = pair.repeat(2)
    else:
        group = pair.repeat_interleave(2)
    rest = rotary.geometry.head_width - rotary.rotary_dim if isinstance(rotary, Rope) else 0
    if rest:
        group = torch.cat([group, torch.full((rest,), len(frequencies))])
        frequencies = torch.cat([frequencies, torch.zeros(1)])
    return RotaryChannels(frequencies, group)


class FrequencyContributions:
    """Sums over pairs for each frequency of a layer, `norm` and `variation` [H, G]."""

    def __init__(self, layer: int, heads: int, channels: RotaryChannels) -> None:
        self.layer, self.channels = layer, channels
        shape = heads, len(channels.frequencies)
        self.norm, self.variation = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))

    def observe(self, block: QueryBlock) -> None:
        if block.layer.index != self.layer:
            return
        scale = block.layer.v.shape[-1] ** -0.5
        q = block.layer.q[:, :, block.rows].double()
        k = block.layer.k[:, :, block.keys].double()
        mask = block.mask.double()
        bound = self._norms(q) * (mask @ self._norms(k))
        self.norm += scale * bound.sum((0, 2)).cpu()
        products = scale * (q @ k.mT)
        mean = (products * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        by_channel = scale * (q * ((products - mean) * mask @ k)).sum((0, 2)).cpu()
        self.variation.index_add_(1, self.channels.group, by_channel)

    def _norms(self, x: Tensor) -> Tensor:
        """Return the norm of each frequency's channels, [B, H, T, G] of x [B, H, T, d']."""
        squares = x.new_zeros(*x.shape[:-1], len(self.channels.frequencies))
        return squares.index_add_(-1, self.channels.group.to(x.device), x.square()).sqrt()

    def fractions(self) -> tuple[Tensor, Tensor]:
        """Return the fractions of the norm and of the variation [H, G]; each sums to 1."""
        norm, variation = (s / s.sum(-1, keepdim=True) for s in (self.norm, self.variation))
        return norm, variation

    def rows(self, length: int) -> list[Row]:
        """Return a row for each head and frequency; `periods` are those of a window."""
        norm, variation = self.fractions()
        rows: list[Row] = []
        for head, index in itertools.product(*map(range, norm.shape)):
            frequency = float(self.channels.frequencies[index])
            rows.append(
                {
                    "length": length,
                    "layer": self.layer,
                    "head": head,
                    "index": index,
                    "frequency": frequency,
                    "periods": length * frequency / (2 * torch.pi),
                    "norm": float(norm[head, index]),
                    "variation": float(variation[head, index]),
                }
            )
        return rows
