"""The attention kernels, and the choice that `kernel=auto` makes for an encoding on a device."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from posenc.attention import (
    KernelFunction,
    UnsupportedKernelError,
    causal,
    factored,
    toeplitz,
)
from posenc.config import settings
from posenc.encodings.base import Encoding, layer_encodings


class AutoKernel(NamedTuple):
    """A kernel that `kernel=auto` may use.

    `used_for` is the reason for choosing it in logs, status.json and tables. `slow_reason` returns
    why another kernel is faster for an encoding that this one supports, or None.
    """

    name: str
    used_for: str
    slow_reason: Callable[[Encoding, torch.device, Tensor], str | None] | None = None


CAUSAL = AutoKernel("causal", "no bias and no window", causal.slow_reason)
FACTORED = AutoKernel("factored", "a low-rank bias", factored.slow_reason)
BLOCKS = AutoKernel("blocks", "any encoding")
AUTO_KERNELS = {
    "cpu": [
        CAUSAL,
        AutoKernel("key_bias", "a bias proportional to distance, in bfloat16"),
        AutoKernel("toeplitz", "a bias that depends only on distance, a window, or a sink"),
        FACTORED,
        BLOCKS,
    ],
    "cuda": [CAUSAL, FACTORED, BLOCKS],
}
"""Device -> kernels in order of preference.

`auto` uses the first one that supports the encoding, according to the `unsupported_reason` of the
kernel, and has no `slow_reason`. `flex` is used only on request, because it has not been run on a
GPU.
"""

KERNELS: dict[str, ModuleType] = {
    name: import_module(f"posenc.attention.{name}") for name in settings.KERNELS if name != "auto"
}


class KernelChoice(NamedTuple):
    """A kernel, the reason for choosing it, and the Toeplitz bias if one was computed."""

    name: str
    reason: str
    bias: Tensor | None = None


def choose(
    encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> KernelChoice:
    """Return the kernel that `kernel=auto` uses for the encoding of one layer.

    `dtype` is the type of queries, keys and values. The positions [T], or coordinates
    [B, T, axes], may be on any device.
    """
    rejected: list[str] = []
    for name, used_for, slow_reason in AUTO_KERNELS.get(device.type, AUTO_KERNELS["cuda"]):
        reason, bias = check_support(name, encoding, device, dtype, pos)
        if reason is None and slow_reason is not None:
            reason = slow_reason(encoding, device, pos)
        if reason is None:
            return KernelChoice(name, "; ".join(rejected) if name == "blocks" else used_for, bias)
        rejected.append(f"{name} not used: {reason}")
    raise AssertionError("blocks supports every encoding")


def check_support(
    name: str, encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> tuple[str | None, Tensor | None]:
    """Return why a kernel does not support an encoding (or None) and the Toeplitz bias (or None).

    For kernels that read a Toeplitz bias, this also checks the values of the bias, in case
    `limitations` does not declare that the bias depends on the query position.
    """
    kernel = KERNELS[name]
    reason = kernel.unsupported_reason(encoding, device, dtype, pos)
    reads_bias = hasattr(kernel, "needs_bias_by_distance")
    if reason is not None or not (reads_bias and kernel.needs_bias_by_distance(encoding)):
        return reason, None
    bias = toeplitz.bias_by_distance(encoding, dtype, pos)
    if bias is None:
        return toeplitz.QUERY_DEPENDENT_REASON, None
    if hasattr(kernel, "unsupported_bias_reason"):
        return kernel.unsupported_bias_reason(bias), bias
    return None, bias


def resolve_kernel(
    name: str, encoding: Encoding, device: torch.device, dtype: torch.dtype, pos: Tensor
) -> KernelChoice:
    """Return the kernel that one layer uses with kernel=`name`; for `auto`, the result of `choose`.

    Raises UnsupportedKernelError if a kernel that is requested by name does not support the layer.
    """
    if name == "auto":
        return choose(encoding, device, dtype, pos)
    reason, bias = check_support(name, encoding, device, dtype, pos)
    if reason is not None:
        raise UnsupportedKernelError(name, encoding, reason)
    return KernelChoice(name, "requested", bias)


def kernel_function(name: str) -> KernelFunction:
    """Return the attention function for kernel=`name`.

    The returned function raises the same errors as `resolve_kernel`.
    """
    return partial(attend, name)


def attend(
    name: str, encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor, pos: Tensor
) -> Tensor:
    """Compute the same output as `reference.attend`, using kernel=`name`."""
    choice = resolve_kernel(name, encoding, q.device, q.dtype, pos)
    return attend_with(choice, encoding, x, q, k, v, pos)


def attend_with(choice: KernelChoice, encoding: Encoding, *inputs: Tensor) -> Tensor:
    """Return the attention output for `inputs` x, q, k, v, pos, computed by the chosen kernel."""
    bias = () if choice.bias is None else (choice.bias,)
    return KERNELS[choice.name].attend(encoding, *inputs, *bias)


@torch.no_grad()
def layer_choices(
    name: str,
    encoding: Encoding,
    device: torch.device,
    dtype: torch.dtype,
    length: int | None = None,
) -> list[KernelChoice]:
    """Return the result of `resolve_kernel` for each layer, by default at the training length."""
    length = length or encoding.geometry.train_length
    cpu = torch.device("cpu")
    return [
        resolve_kernel(name, layer, device, dtype, layer.positions(length, cpu))
        for layer in layer_encodings(encoding)
    ]


def describe_choices(choices: Sequence[KernelChoice]) -> str:
    """Return the kernels of all layers in one line, such as `toeplitz (a bias that ...)`."""
    layers: dict[str, list[str]] = {}
    for index, choice in enumerate(choices):
        layers.setdefault(f"{choice.name} ({choice.reason})", []).append(str(index))
    if len(layers) == 1:
        return next(iter(layers))
    return "; ".join(
        f"layer{'s' * (len(indices) > 1)} {', '.join(indices)}: {kernel}"
        for kernel, indices in layers.items()
    )
