"""The contribution of each rotary frequency to scores (Barbero et al. 2024, arXiv:2410.06205).

q_i . k_j / sqrt(d) is the sum over frequencies g of s_g(i, j), the contribution of the channels
that g rotates. Channels that are not rotated have frequency 0. There are two fractions for each g:

    norm       the Cauchy-Schwarz bound |q_i^g| |k_j^g| / sqrt(d) on s_g, summed over all pairs of a
               query and a key that it attends to, divided by the sum over all frequencies
    variation  sum_ij s_g(i, j) c(i, j) / sum_ij c(i, j)^2, where c(i, j) is q_i . k_j / sqrt(d)
               minus its mean over the keys of query i, which does not affect the softmax. It sums
               to 1 over all g, and is negative if a frequency counteracts the others
"""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.encodings.pope import Pope
from posenc.encodings.rope import Rope, per_channel
from posenc.encodings.wrapper import innermost_encoding
from posenc.inspect.run.observe import ObservedBlock, tensor_rows
from posenc.runs.row_types import Row


class RotaryChannels(NamedTuple):
    """A layer's frequencies [G] in radians per token, and each channel's frequency index [d']."""

    frequencies: Tensor
    frequency_index: Tensor


def rotary_channels(encoding: Encoding, length: int) -> RotaryChannels | None:
    """Return the rotary channels of a layer in windows of `length`.

    Returns None unless the layer's encoding is RoPE, PoPE or a subclass, with a single rotation.
    """
    rotary = innermost_encoding(encoding)
    if not isinstance(rotary, Rope | Pope) or encoding.overrides("rotation_index"):
        return None
    angles, _ = rotary.sinusoids.angles(torch.arange(length))
    frequencies = (angles[-1] - angles[-2])[0].detach()
    pairs = torch.arange(len(frequencies))
    index = per_channel(pairs, "half" if isinstance(rotary, Pope) else rotary.layout)
    unrotated = rotary.geometry.head_dim - rotary.rotary_dim if isinstance(rotary, Rope) else 0
    if unrotated:
        index = torch.cat([index, torch.full((unrotated,), len(frequencies))])
        frequencies = torch.cat([frequencies, torch.zeros(1)])
    return RotaryChannels(frequencies, index)


class FrequencyContributions:
    """The sums of `norm` and `variation` [H, G] over all pairs of a query and a key in a layer."""

    def __init__(self, layer: int, heads: int, channels: RotaryChannels) -> None:
        self.layer, self.channels = layer, channels
        shape = heads, len(channels.frequencies)
        self.norm, self.variation = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))

    def observe(self, block: ObservedBlock) -> None:
        if block.layer != self.layer:
            return
        scale = block.inputs.v.shape[-1] ** -0.5
        q = block.inputs.q[:, :, block.rows].double()
        k = block.inputs.k[:, :, block.keys].double()
        mask = block.mask.double()
        bound = self._norms(q) * (mask @ self._norms(k))
        self.norm += scale * bound.sum((0, 2)).cpu()
        products = scale * (q @ k.mT)
        mean = (products * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        by_channel = scale * (q * ((products - mean) * mask @ k)).sum((0, 2)).cpu()
        self.variation.index_add_(1, self.channels.frequency_index, by_channel)

    def _norms(self, x: Tensor) -> Tensor:
        """Return the norm of each frequency's channels [B, H, T, G] for x [B, H, T, d']."""
        squares = x.new_zeros(*x.shape[:-1], len(self.channels.frequencies))
        index = self.channels.frequency_index.to(x.device)
        return squares.index_add_(-1, index, x.square()).sqrt()

    def fractions(self) -> tuple[Tensor, Tensor]:
        """Return the fractions of the norm and of the variation [H, G]; each sums to 1."""
        norm, variation = (s / s.sum(-1, keepdim=True) for s in (self.norm, self.variation))
        return norm, variation

    def rows(self, length: int) -> list[Row]:
        """Return a row per head and frequency; `periods` is the number of periods per window."""
        norm, variation = self.fractions()
        frequency = self.channels.frequencies.double()
        periods = length * frequency / (2 * torch.pi)
        columns = {"frequency": frequency, "periods": periods, "norm": norm, "variation": variation}
        return tensor_rows({"length": length, "layer": self.layer}, ("head", "index"), columns)
