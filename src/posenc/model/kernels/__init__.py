"""Attention kernels: `reference` is the definition, every other one equals it or refuses by name.

A kernel is `attend(encoding, x, q, k, v, pos) -> [B, H, T, d]` for x [B, T, D] the layer's input,
q and k [B, H, T, d'] after `rotate`, v [B, H, T, d] and pos [T] or [B, T, axes]. Scores are
q . k / sqrt(d) with d the width of the values, plus the encoding's biases.
"""

from collections.abc import Callable

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


def kernel(name: str) -> Kernel:
    """The kernel of that name; ValueError for an unknown one."""
    if name not in KERNELS:
        raise ValueError(f"kernel={name} is unknown; there are auto, {', '.join(KERNELS)}")
    return KERNELS[name]
