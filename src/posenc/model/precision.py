"""What `precision` means."""

import torch

LIGHTNING = {"float32": "32-true", "bf16": "bf16-mixed"}


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16 for `bf16`; nothing changed for `float32`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
