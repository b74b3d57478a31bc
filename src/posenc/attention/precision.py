"""Data types and autocast for the setting `precision`."""

import torch

LIGHTNING_PRECISION = {"float32": "32-true", "bf16": "bf16-mixed"}


def attention_dtype(precision: str) -> torch.dtype:
    """Return the data type of queries, keys and values."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return an autocast context, in bfloat16 for `bf16` and disabled for `float32`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
