"""Optimizers: subclasses of `torch.optim.Optimizer`, or functions that build one for a model."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, overload

import torch
from omegaconf import DictConfig
from torch import nn

from posenc.config.components import build
from posenc.config.errors import ConfigError, import_extra
from posenc.training.muon import Muon

OptimizerFactory = Callable[[nn.Module], torch.optim.Optimizer]


def optimizer_factory(config: DictConfig) -> OptimizerFactory:
    """Return a function that builds the optimizer of `config` for a model.

    A subclass of `torch.optim.Optimizer` gets the parameter groups of `parameter_groups`. Raises
    ConfigError if the optimizer cannot be built.
    """
    built = build(config.optimizer, name="optimizer", modules=list(config.modules))
    target = built.func if isinstance(built, partial) else built
    if target is torch.optim.Muon:
        raise ConfigError(
            "optimizer: torch.optim.Muon accepts only matrices; set optimizer=muon, which trains"
            " all other parameters with AdamW"
        )
    if inspect.isclass(target) and issubclass(target, torch.optim.Optimizer):
        return lambda model: built(parameter_groups(model))
    return built


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Return a group of the parameters with two or more dimensions, and one of all others.

    The latter has no weight decay. Empty groups are omitted.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2]},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: list[float],
    weight_decay: float,
) -> torch.optim.AdamW:
    """Fused AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101).

    Weight decay applies to parameters with two or more dimensions (`parameter_groups`).
    """
    _check_learning_rate(learning_rate)
    _check_betas_and_weight_decay(betas, weight_decay)
    return torch.optim.AdamW(
        parameter_groups(model),
        lr=learning_rate,
        betas=(betas[0], betas[1]),
        weight_decay=weight_decay,
        fused=True,
    )


def nag(model: nn.Module, *, learning_rate: float, momentum: float) -> torch.optim.SGD:
    """Nesterov's accelerated gradient, as in fairseq's `nag` (Bengio et al. 2013, arXiv:1212.0901).

    With velocity v, learning rate r and gradient g, step t is
    v_t = momentum (r_t / r_{t-1}) v_{t-1} - r_t g and weights += momentum v_t - r_t g. With -v / r
    as the momentum buffer, this is PyTorch's SGD with Nesterov momentum, for any schedule.
    """
    if not 0 < momentum < 1:
        raise ValueError(f"momentum={momentum} must be above 0 and below 1")
    _check_learning_rate(learning_rate)
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(
        parameters, lr=learning_rate, momentum=momentum, nesterov=True, fused=True
    )


def lion(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: list[float],
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Lion (Chen et al. 2023, arXiv:2302.06675), from the package pytorch-optimizer.

    Weight decay applies as in `adamw`. Raises ConfigError if the package is not installed.
    """
    _check_learning_rate(learning_rate)
    _check_betas_and_weight_decay(betas, weight_decay)
    package = import_extra("pytorch_optimizer", "optimizer=lion")
    groups = parameter_groups(model)
    return package.Lion(groups, lr=learning_rate, betas=tuple(betas), weight_decay=weight_decay)


def muon(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    momentum: float,
    adamw_learning_rate: float,
    betas: list[float],
) -> "CombinedOptimizer":
    """Muon (Jordan et al. 2024) for the matrices of the blocks, AdamW for all other parameters.

    Muon's updates are scaled to match AdamW's, so the two may share one learning rate. Weight decay
    applies to the matrices of the blocks.
    """
    _check_learning_rate(learning_rate)
    _check_learning_rate(adamw_learning_rate, "adamw_learning_rate")
    _check_betas_and_weight_decay(betas, weight_decay)
    matrices, others = [], []
    for name, p in model.named_parameters():
        if p.requires_grad:
            is_matrix = name.startswith("blocks.") and p.ndim == 2
            (matrices if is_matrix else others).append(p)
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        optimizers.append(
            Muon(
                matrices,
                learning_rate=learning_rate,
                momentum=momentum,
                weight_decay=weight_decay,
            )
        )
    if others:
        adam_betas = (betas[0], betas[1])
        optimizers.append(
            torch.optim.AdamW(
                others, lr=adamw_learning_rate, betas=adam_betas, weight_decay=0.0, fused=True
            )
        )
    return CombinedOptimizer(*optimizers)


def _check_learning_rate(value: float, name: str = "learning_rate") -> None:
    if value <= 0:
        raise ValueError(f"{name}={value} must be positive")


def _check_betas_and_weight_decay(betas: list[float], weight_decay: float) -> None:
    if len(betas) != 2 or weight_decay < 0:
        raise ValueError(
            f"betas={betas} must be two numbers, and weight_decay={weight_decay}"
            " must not be negative"
        )


class CombinedOptimizer(torch.optim.Optimizer):
    """Combines several optimizers, each with its own parameters, into one."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        super().__init__(groups, {})
        self._share_state()

    def _share_state(self) -> None:
        """Make the optimizers use the combined groups and state, which `state_dict` saves."""
        start = 0
        for optimizer in self.optimizers:
            stop = start + len(optimizer.param_groups)
            optimizer.param_groups = self.param_groups[start:stop]
            optimizer.state = self.state
            start = stop

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share_state()

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss
