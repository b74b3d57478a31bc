"""Optimizers and schedulers of torch, configured with `_target_` and `_partial_`."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ExponentialLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
)

from posenc.config.components import build
from posenc.config.compose import Composer
from posenc.config.errors import ConfigError
from posenc.jobs.job_config import compose_job
from posenc.jobs.validate import validate
from posenc.training.optimizer import adamw, lion, optimizer_factory
from posenc.training.schedule import build_scheduler

SCHEDULERS: dict[str, dict[str, Any]] = {
    "ConstantLR": {"total_iters": 3},
    "CosineAnnealingLR": {"T_max": 8},
    "CosineAnnealingWarmRestarts": {"T_0": 3},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4},
    "ExponentialLR": {"gamma": 0.9},
    "LinearLR": {"start_factor": 0.5, "total_iters": 4},
    "MultiStepLR": {"milestones": [2, 4]},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 8},
    "PolynomialLR": {"total_iters": 8, "power": 2},
    "StepLR": {"step_size": 2},
}


def node(target: str, **parameters: Any) -> DictConfig:
    return OmegaConf.create({"_target_": target, "_partial_": True, **parameters})


CHILD = {"_target_": "torch.optim.lr_scheduler.ConstantLR"}
ONE_CYCLE = node(
    "torch.optim.lr_scheduler.OneCycleLR", max_lr=1, total_steps=30, cycle_momentum=False
)


def job(small_job: list[str], folder: Path, **nodes: DictConfig) -> DictConfig:
    """Compose a job with the components of custom YAML files."""
    for group, component in nodes.items():
        (folder / group).mkdir(parents=True)
        OmegaConf.save(component, folder / group / "mine.yaml")
    return compose_job(
        [*small_job, *(f"{group}=mine" for group in nodes)], Composer("train", [folder])
    )


@pytest.mark.parametrize(
    ("target", "parameters"),
    [
        ("torch.optim.Adam", {"lr": 1e-3, "betas": [0.8, 0.9]}),
        ("torch.optim.SGD", {"lr": 1, "momentum": 0.9, "nesterov": True}),
        ("torch.optim.RMSprop", {}),
        ("torch.optim.Adagrad", {"weight_decay": 0.1}),
    ],
)
def test_a_torch_optimizer_decays_matrices_only(target: str, parameters: dict[str, Any]) -> None:
    config = OmegaConf.create({"optimizer": node(target, **parameters), "modules": []})
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    optimizer = optimizer_factory(config)(model)
    assert type(optimizer).__name__ == target.split(".")[-1]
    matrices, vectors = optimizer.param_groups
    assert [p.ndim for p in matrices["params"]] == [2]
    assert [p.ndim for p in vectors["params"]] == [1, 1, 1]
    assert matrices["weight_decay"] == parameters.get("weight_decay", 0)
    assert vectors["weight_decay"] == 0
    assert matrices["lr"] == vectors["lr"] == parameters.get("lr", 0.01)


def test_adamw_of_torch_with_our_parameters_takes_the_same_steps_as_ours() -> None:
    arguments = {"betas": [0.9, 0.95], "weight_decay": 0.1}
    target = node("torch.optim.AdamW", lr=0.01, fused=True, **arguments)
    theirs = optimizer_factory(OmegaConf.create({"optimizer": target, "modules": []}))
    weights = []
    for factory in (theirs, lambda model: adamw(model, learning_rate=0.01, **arguments)):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = factory(model)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        weights.append(model.state_dict())
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], rtol=0, atol=0)


def sequential(optimizer: torch.optim.Optimizer, warmup: int) -> LRScheduler:
    parts: list[LRScheduler] = [
        LinearLR(optimizer, 0.1, total_iters=warmup),
        ExponentialLR(optimizer, 0.9),
    ]
    return SequentialLR(optimizer, parts, milestones=[warmup])


def chained(optimizer: torch.optim.Optimizer, gamma: float) -> LRScheduler:
    return ChainedScheduler([LinearLR(optimizer), ExponentialLR(optimizer, gamma)], optimizer)


def not_a_scheduler(optimizer: torch.optim.Optimizer) -> float:
    return 0.5


FACTORIES = {
    "a function that returns a SequentialLR": partial(sequential, warmup=2),
    "a function that returns a ChainedScheduler": partial(chained, gamma=0.5),
}


@pytest.mark.parametrize("name", [*SCHEDULERS, *FACTORIES])
def test_a_torch_scheduler_resumes_where_it_stopped(name: str) -> None:
    schedule = FACTORIES.get(name) or build(
        node(f"torch.optim.lr_scheduler.{name}", **SCHEDULERS[name]), name="schedule"
    )

    def learning_rates(stop: int) -> list[float]:
        """The rates of 8 steps; before step `stop`, the states are saved and loaded again."""
        optimizer, rates = sgd(), []
        scheduler = build_scheduler(schedule, optimizer, 8)
        for step in range(8):
            if step == stop:
                saved = io.BytesIO()
                torch.save([optimizer.state_dict(), scheduler.state_dict()], saved)
                saved.seek(0)
                optimizer = sgd()
                scheduler = build_scheduler(schedule, optimizer, 8)
                states = torch.load(saved, weights_only=True)
                optimizer.load_state_dict(states[0])
                scheduler.load_state_dict(states[1])
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return rates

    rates = learning_rates(stop=-1)
    assert len(set(rates)) > 1
    assert learning_rates(stop=3) == rates


def test_a_function_of_the_optimizer_must_return_a_scheduler() -> None:
    with pytest.raises(TypeError, match=r"line \d+: not_a_scheduler returned float, but must"):
        build_scheduler(not_a_scheduler, sgd(), 8)


def sgd() -> torch.optim.SGD:
    return torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)


def test_the_shipped_torch_optimizers_and_a_torch_schedule_are_valid(
    small_job: list[str], tmp_path: Path
) -> None:
    schedule = node("torch.optim.lr_scheduler.CosineAnnealingLR", T_max=40)
    for i, name in enumerate(("adam", "sgd")):
        config = job([*small_job, f"optimizer={name}"], tmp_path / str(i), schedule=schedule)
        assert config.modules == []  # torch as a whole is not trusted
        validate(config)


@pytest.mark.parametrize(
    ("group", "component", "message"),
    [
        ("optimizer", node("torch.optim.Adam", learning_rate=1), "unknown parameter optimizer"),
        ("optimizer", node("torch.optim.Adam", params=[]), "unknown parameter optimizer.params"),
        ("optimizer", node("torch.optim.Adam", lr="fast"), "optimizer.lr='fast'"),
        ("optimizer", node("torch.optim.SGD", lr=-1), "optimizer: Invalid learning rate"),
        ("optimizer", node("torch.optim.LBFGS"), "optimizer: LBFGS"),
        ("optimizer", node("torch.optim.Muon"), "optimizer=muon"),
        ("optimizer", node("torch.optim.SparseAdam"), "optimizer: RuntimeError: SparseAdam"),
        ("schedule", node("torch.optim.lr_scheduler.StepLR"), "has no step_size"),
        ("schedule", ONE_CYCLE, "total_steps=30"),
        ("schedule", node("torch.optim.lr_scheduler.ReduceLROnPlateau"), "metric"),
        (
            "schedule",
            node("torch.optim.lr_scheduler.SequentialLR", schedulers=[CHILD], milestones=[1]),
            "write a function",
        ),
        ("optimizer", node("torch.hub.load"), r"outside posenc"),
    ],
)
def test_an_invalid_torch_component_is_refused(
    small_job: list[str], tmp_path: Path, group: str, component: DictConfig, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config = job(small_job, tmp_path / "conf", **{group: component})
        config.modules = []
        validate(config)


@pytest.mark.parametrize(
    ("group", "target"),
    [("optimizer", "torch.optim.Adam"), ("schedule", f"{__name__}.not_a_scheduler")],
)
def test_a_factory_without_partial_is_an_error(
    small_job: list[str], tmp_path: Path, group: str, target: str
) -> None:
    component = OmegaConf.create({"_target_": target})
    with pytest.raises(ConfigError, match=f"{group}._partial_=true"):
        validate(job(small_job, tmp_path / "conf", **{group: component}))


def test_lion_follows_the_papers_algorithm() -> None:
    """Chen et al. 2023, algorithm 2, with decay on the matrix only."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    expected = [p.detach().clone() for p in model.parameters()]
    averages = [torch.zeros_like(p) for p in expected]
    optimizer = lion(model, learning_rate=0.1, betas=[0.8, 0.95], weight_decay=0.3)
    for _ in range(5):
        for p, value, average in zip(model.parameters(), expected, averages, strict=True):
            p.grad = torch.randn_like(p)
            decay = 0.3 if value.ndim == 2 else 0.0
            update = (0.8 * average + 0.2 * p.grad).sign()
            value -= 0.1 * (update + decay * value)
            average.mul_(0.95).add_(0.05 * p.grad)
        optimizer.step()
    for p, value in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=0, atol=1e-12)
