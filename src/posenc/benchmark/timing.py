"""Times calls, including the matmul whose FLOP/s define 100% utilization."""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from posenc.model.device import attention_dtype

MATMUL_SIZE = {"cpu": 2048, "cuda": 8192}
"""Size of the square matrices whose product is timed to measure the device's peak FLOP/s."""


def make_matmul(precision: str, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that multiplies two square matrices in the given precision."""
    size, dtype = MATMUL_SIZE[device.type], attention_dtype(precision)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return partial(torch.mm, a, b, out=torch.empty_like(a))


def matmul_flops(device: torch.device) -> int:
    """Return the floating-point operations of one matmul."""
    return 2 * MATMUL_SIZE[device.type] ** 3


def call_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the duration of a call in seconds, including its GPU kernels."""
    synchronize = torch.get_device_module(device).synchronize  # does nothing on a CPU
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start
