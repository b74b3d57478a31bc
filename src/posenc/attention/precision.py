"""What `precision` means."""

import torch

LIGHTNING = {"float32": "32-true", "bf16": "bf16-mixed"}


def dtype_of(precision: str) -> torch.dtype:
    """The type of the operands of matrix products."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16 for `bf16`; nothing changed for `float32`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
