"""Attention kernels: `reference` is the definition, every other one equals it or refuses by name.

A kernel is `attend(encoding, x, q, k, v, pos) -> [B, H, T, d]` for x [B, T, D] the layer's input,
q and k [B, H, T, d'] after `rotate`, v [B, H, T, d] and pos [T] or [B, T, axes]. Scores are
q . k / sqrt(d) with d the width of the values, plus the encoding's biases.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.model.kernels import blocks, causal, factored, lines, reference, sdpa

Kernel = Callable[[Encoding, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

KERNELS: dict[str, Kernel] = {
    "reference": reference.attend,
    "sdpa": sdpa.attend,
    "causal": causal.attend,
    "lines": lines.attend,
    "factored": factored.attend,
    "blocks": blocks.attend,
}


def resolve(name: str) -> str:
    """The kernel that `auto` stands for: sdpa, which serves every encoding on every device."""
    return "sdpa" if name == "auto" else name


def described(encoding: Encoding, device: torch.device, precision: str) -> list[str]:
    """What `sdpa` does with every layer of an encoding, and why: a line for each way."""
    geometry = encoding.geometry
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    pos = encoding.positions(geometry.train_length, device)
    x = torch.zeros(1, geometry.train_length, geometry.width, device=device)
    shape = (1, geometry.heads, geometry.train_length, geometry.head_width)
    q = torch.zeros(shape, device=device, dtype=dtype)
    layers: dict[str, list[str]] = {}
    for index in range(geometry.layers):
        way = sdpa.choose(encoding.at_layer(index), x, q, pos)
        layers.setdefault(f"{way.name} ({way.why})" if way.why else way.name, []).append(str(index))
    return [f"attention of layers {', '.join(at)}: {way}" for way, at in layers.items()]


def kernel(name: str) -> Kernel:
    """The kernel of that name; ValueError for an unknown one."""
    if name not in KERNELS:
        raise ValueError(f"kernel={name} is unknown; there are auto, {', '.join(KERNELS)}")
    return KERNELS[name]
