"""Attention kernels: `reference` is the definition, every other one equals it or refuses by name.

A kernel is `attend(encoding, x, q, k, v, pos) -> [B, H, T, d]` for x [B, T, D] the layer's input,
q and k [B, H, T, d'] after `rotate`, v [B, H, T, d] and pos [T] or [B, T, axes]. Scores are
q . k / sqrt(d) with d the width of the values, plus the encoding's biases.
"""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from posenc.attention import blocks, causal, factored, flex, reference, sdpa, toeplitz
from posenc.attention.precision import dtype_of
from posenc.encodings.base import Encoding

Kernel = Callable[[Encoding, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

KERNELS: dict[str, Kernel] = {
    "reference": reference.attend,
    "sdpa": sdpa.attend,
    "causal": causal.attend,
    "lines": toeplitz.attend,
    "factored": factored.attend,
    "blocks": blocks.attend,
    "flex": flex.attend,
}


def resolve(name: str) -> str:
    """The kernel that `auto` stands for: sdpa, which serves every encoding on every device."""
    return "sdpa" if name == "auto" else name


@torch.no_grad()
def ways(encoding: Encoding, device: torch.device, precision: str) -> list[sdpa.Way]:
    """The way of each layer through `sdpa` at the training length."""
    encoding = copy.deepcopy(encoding).to(device)
    x, q, pos = _nothing(encoding, encoding.geometry.train_length, device, precision)
    layers = map(encoding.at_layer, range(encoding.geometry.layers))
    return [sdpa.choose(layer, x, q, pos) for layer in layers]


def described(ways: Iterable[sdpa.Way]) -> list[str]:
    """Which layers go which way, and why: a line for each way."""
    layers: dict[str, list[str]] = {}
    for index, way in enumerate(ways):
        layers.setdefault(f"{way.name} ({way.why})" if way.why else way.name, []).append(str(index))
    return [f"attention of layers {', '.join(at)}: {way}" for way, at in layers.items()]


@torch.no_grad()
def refuse(name: str, encoding: Encoding, device: torch.device, precision: str) -> None:
    """UnsupportedKernelError if the kernel does not support every layer of the encoding."""
    attend, encoding = kernel(name), copy.deepcopy(encoding).to(device)
    x, q, pos = _nothing(encoding, 1, device, precision)
    for index in range(encoding.geometry.layers):
        layer = encoding.at_layer(index)
        if name == "flex":  # what it refuses it refuses before it compiles, which takes long
            flex.served(layer, q, pos)
        else:
            attend(layer, x, q, q, q, pos)


def _nothing(
    encoding: Encoding, length: int, device: torch.device, precision: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for x and q, and the positions, of as many tokens."""
    geometry = encoding.geometry
    dtype = dtype_of(precision)
    x = torch.zeros(1, length, geometry.width, device=device)
    q = torch.zeros(1, geometry.heads, length, geometry.head_width, device=device, dtype=dtype)
    return x, q, encoding.positions(length, device)


def kernel(name: str) -> Kernel:
    """The kernel of that name; ValueError for an unknown one."""
    if name not in KERNELS:
        raise ValueError(f"kernel={name} is unknown; there are auto, {', '.join(KERNELS)}")
    return KERNELS[name]
