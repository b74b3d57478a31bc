"""Times calls, such as the matrix product whose speed defines a utilization of 1."""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from posenc.attention.precision import attention_dtype

PRODUCT_SIZE = {"cpu": 2048, "cuda": 8192}
"""Size of the square matrices whose product is timed to measure the device's peak FLOP/s."""


def matrix_product(precision: str, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that multiplies two square matrices in the given precision."""
    size, dtype = PRODUCT_SIZE[device.type], attention_dtype(precision)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return partial(torch.mm, a, b, out=torch.empty_like(a))


def product_flops(device: torch.device) -> int:
    """Return the floating-point operations of one `matrix_product`."""
    return 2 * PRODUCT_SIZE[device.type] ** 3


def call_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the duration of a call; on a GPU, includes waiting for its kernels to finish."""
    synchronize = torch.get_device_module(device).synchronize  # does nothing on a CPU
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - start
