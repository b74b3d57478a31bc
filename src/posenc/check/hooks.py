"""The hooks of an encoding, called as the host calls them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.attention.scores import at, bias, distances, seen, wide
from posenc.check.subject import SEED
from posenc.encodings.base import Encoding

ROWS = 2
"""As many tokens, the last, are queries of what is added to scores."""


@dataclass(frozen=True)
class Given:
    """What the host hands to an encoding: x [1, T, D], q, k and v [1, H, T, d], positions."""

    x: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    pos: Tensor

    def to(self, stream: torch.dtype, heads: torch.dtype) -> "Given":
        """The same with x, and with q, k and v, in other precisions."""
        q, k, v = (tensor.to(heads) for tensor in (self.q, self.k, self.v))
        return Given(self.x.to(stream), q, k, v, self.pos)


def given(encoding: Encoding, length: int) -> Given:
    """Random values that any precision holds exactly, in float64."""
    geometry = encoding.geometry
    shape = (1, geometry.heads, length, geometry.head_width)
    q, k, v = (_drawn(seed, *shape) for seed in (1, 2, 3))
    torch.manual_seed(SEED)
    pos = encoding.positions(length, torch.device("cpu"))
    return Given(_drawn(0, 1, length, geometry.width), q, k, v, pos)


def layers(encoding: Encoding) -> Iterator[int]:
    """The layers to look at: all, or the first where it stands for all."""
    for layer in range(encoding.geometry.layers):
        if layer == 0 or encoding.at_layer(layer) is not encoding:
            yield layer


def answers(encoding: Encoding, layer: int, to: Given) -> dict[str, Tensor]:
    """What the hooks of a layer give: scores for the last ROWS queries, and outside autocast."""
    torch.manual_seed(SEED)
    encoding.eval()
    found = {"embed": encoding.embed(to.x, to.pos)}
    here = encoding.at_layer(layer)
    found["rotate"], found["rotate of keys"] = here.rotate(to.x, to.q, to.k, to.pos)
    shape = found["rotate"].shape
    q, k = (_drawn(seed, *shape).to(to.q.dtype) for seed in (4, 5))
    keys = slice(0, shape[-2])
    rows = slice(max(0, keys.stop - ROWS), keys.stop)
    with torch.autocast("cpu", enabled=False):
        hidden = ~seen(rows, keys, here.window(), to.x.device)
        added = bias(here, to.x, q, k, to.pos, rows, keys)
        if added is not None:
            found["bias"] = added.masked_fill(hidden, 0)
        dtype = wide(q.dtype)
        weights = (q[:, :, rows].to(dtype) @ k.to(dtype).mT).masked_fill(hidden, -torch.inf)
        distance = distances(at(to.pos, rows), at(to.pos, keys), dtype)
        mixed = here.value_bias(weights.softmax(dim=-1), distance)
    return found if mixed is None else {**found, "value_bias": mixed}


def _drawn(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16().double()
