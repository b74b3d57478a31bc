"""Optimizers as functions `(model, ...) -> torch.optim.Optimizer`."""

import torch
from torch import nn


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: list[float],
    weight_decay: float,
) -> torch.optim.AdamW:
    """AdamW (1711.05101), fused; weight decay on matrices, none on norms, biases and vectors."""
    if len(betas) != 2 or weight_decay < 0:
        raise ValueError(
            f"betas={betas} must be two numbers and weight_decay={weight_decay} 0 or above"
        )
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    filled = [group for group in groups if group["params"]]
    return torch.optim.AdamW(filled, lr=learning_rate, betas=(betas[0], betas[1]), fused=True)
