"""Private PyTorch operators that posenc calls, each None if the installed PyTorch lacks it.

Tested with torch 2.9.1, 2.10.0, 2.13.0, 2.14.1 and 2.15.0. Without an operator, its callers compute
the same result with public functions, using more time and memory. Private operators may change
without notice.
"""

from collections.abc import Callable
from typing import Any

import torch


def find_operator(namespace: str, name: str) -> Callable[..., Any] | None:
    """Return the operator torch.ops.`namespace`.`name`, or None if PyTorch does not have it."""
    return getattr(getattr(torch.ops, namespace), name, None)


CPU_ATTENTION = find_operator("aten", "_scaled_dot_product_flash_attention_for_cpu")
"""Fused attention that also returns the logsumexp of the scores; `fused_sdpa` calls it."""

CPU_ATTENTION_BACKWARD = find_operator(
    "aten", "_scaled_dot_product_flash_attention_for_cpu_backward"
)
"""The gradients of `CPU_ATTENTION`."""

ONEDNN_LINEAR = find_operator("mkldnn", "_linear_pointwise")
"""oneDNN's linear map, which `model/linear.py` uses for float32 on CPUs with AVX-512."""
