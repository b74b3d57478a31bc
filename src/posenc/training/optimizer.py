"""Optimizers: functions `(model, ...)` that return a `torch.optim.Optimizer`."""

import torch
from torch import nn


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: list[float],
    weight_decay: float,
) -> torch.optim.AdamW:
    """Fused AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101).

    Weight decay applies to matrices, not to norms, biases and other vectors.
    """
    if len(betas) != 2 or weight_decay < 0:
        raise ValueError(
            f"betas={betas} must be two numbers and weight_decay={weight_decay} 0 or more"
        )
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(betas[0], betas[1]), fused=True)


def nag(model: nn.Module, *, learning_rate: float, momentum: float) -> torch.optim.SGD:
    """Nesterov's accelerated gradient, as fairseq's `nag` (Bengio et al. 2013, arXiv:1212.0901).

    With velocity v, learning rate r and gradient g, step t is
    v_t = momentum (r_t / r_{t-1}) v_{t-1} - r_t g and weights += momentum v_t - r_t g. With -v / r
    as the momentum buffer, this is PyTorch's SGD with Nesterov momentum, for any schedule.
    """
    if not 0 < momentum < 1:
        raise ValueError(f"momentum={momentum} must be above 0 and below 1")
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(
        parameters, lr=learning_rate, momentum=momentum, nesterov=True, fused=True
    )
