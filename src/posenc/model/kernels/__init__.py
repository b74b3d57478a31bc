"""Attention kernels: `reference` is the definition, every other one equals it or refuses.

A kernel is `attend(encoding, x, q, k, v, pos) -> [B, H, T, d]` for x [B, T, D] the layer's input,
q and k [B, H, T, d'] after `rotate`, v [B, H, T, d] and pos [T] or [B, T, axes]. Scores are
q . k / sqrt(d) with d the width of the values, plus the encoding's biases.
"""

from collections.abc import Callable

from torch import Tensor

from posenc.encodings.base import Encoding
from posenc.model.kernels import reference, sdpa

Kernel = Callable[[Encoding, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def resolve(name: str) -> str:
    """The kernel that `auto` stands for: sdpa, which serves every encoding on every device."""
    return "sdpa" if name == "auto" else name


def kernel(name: str) -> Kernel:
    """The kernel of that name; ValueError for an unknown one."""
    kernels: dict[str, Kernel] = {"reference": reference.attend, "sdpa": sdpa.attend}
    if name not in kernels:
        raise ValueError(f"kernel={name} is unknown; there are auto, {', '.join(kernels)}")
    return kernels[name]
