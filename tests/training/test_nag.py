"""NAG against a loop over its formula, and cosine restarts against fairseq's closed form."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from posenc.config.compose import compose
from posenc.training.optimizer import nag
from posenc.training.schedule import cosine_restarts

# The fairseq flags of the ALiBi paper (Press et al. 2022), relative to a peak of 1.
PUBLISHED: dict[str, Any] = {
    "warmup_steps": 16000,
    "warmup_init_ratio": 1e-7,
    "period_steps": 270000,
    "period_mult": 2,
    "lr_shrink": 0.75,
    "min_lr_ratio": 1e-4,
}


class Model(nn.Module):
    """The parameters and the gradient of a function: a quadratic minus cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64))
        self.curvature = torch.tensor([0.1, 0.5, 1.0, 3.0], dtype=torch.float64)

    def gradient(self, x: Tensor) -> Tensor:
        return self.curvature * x + x.sin()


def optimised(model: Model, optimizer: torch.optim.Optimizer, rates: list[float]) -> Tensor:
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        model.x.grad = model.gradient(model.x.detach())
        optimizer.step()
    return model.x.detach()


def by_formula(rates: list[float], momentum: float) -> list[float]:
    """The weights in plain arithmetic; the velocity is rescaled when the learning rate changes."""
    model = Model()
    x, velocity, last_rate = model.x.tolist(), [0.0] * 4, rates[0]
    for rate in rates:
        gradient = model.gradient(torch.tensor(x, dtype=torch.float64)).tolist()
        for i in range(4):
            rescaled = velocity[i] * rate / last_rate
            x[i] += momentum * momentum * rescaled - (1 + momentum) * rate * gradient[i]
            velocity[i] = momentum * rescaled - rate * gradient[i]
        last_rate = rate
    return x


@pytest.mark.parametrize(
    "rate", [lambda n: 0.02, lambda n: 0.001 * (n + 1), lambda n: 0.03 * math.cos(n / 40)]
)
def test_nag_equals_its_formula_under_any_schedule(rate: Callable[[int], float]) -> None:
    rates, model = [rate(n) for n in range(50)], Model()
    weights = optimised(model, nag(model, learning_rate=1.0, momentum=0.9), rates)
    assert weights.tolist() == pytest.approx(by_formula(rates, 0.9), rel=1e-11)


def test_momentum_must_be_between_0_and_1() -> None:
    for momentum in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"momentum={momentum}"):
            nag(Model(), learning_rate=1.0, momentum=momentum)


def closed_form(step: int) -> float:
    """The learning rate of a step with the published flags, in fairseq's closed form."""
    if step < 16000:
        return 1e-7 + step * (1.0 - 1e-7) / 16000
    step = step - 16000
    period = math.floor(math.log(1 - step / 270000 * (1 - 2), 2))
    period_start = (1 - 2**period) / (1 - 2) * 270000
    peak, minimum = 0.75**period, 1e-4 * 0.75**period
    progress = (step - period_start) / (2**period * 270000)
    return minimum + 0.5 * (peak - minimum) * (1 + math.cos(math.pi * progress))


STEPS = [0, 1, 8000, 15999, 16000, 16001, 150000, 285999, 286000, 286001, 600000, 826000, 1500000]


@pytest.mark.parametrize("step", STEPS)
def test_cosine_restarts_equal_the_closed_form(step: int) -> None:
    assert cosine_restarts(step, 286000, **PUBLISHED) == pytest.approx(closed_form(step), rel=1e-9)


def test_the_defaults_are_the_published_schedule() -> None:
    config = compose("train", ["schedule=cosine_restarts", "optimizer=nag"])
    assert {key: config.schedule[key] for key in PUBLISHED} == PUBLISHED
    assert config.optimizer.learning_rate == 1.0


def test_a_restart_returns_to_the_shrunk_peak() -> None:
    last, first = (cosine_restarts(step, 1, **PUBLISHED) for step in (285999, 286000))
    assert last == pytest.approx(1e-4, rel=1e-3)
    assert first == 0.75


def test_periods_of_equal_length_repeat() -> None:
    parameters: dict[str, Any] = {
        "warmup_steps": 0,
        "warmup_init_ratio": 0.0,
        "period_steps": 10,
        "period_mult": 1,
        "lr_shrink": 1.0,
        "min_lr_ratio": 0.1,
    }
    factors = [cosine_restarts(step, 40, **parameters) for step in range(40)]
    assert factors[:10] * 4 == pytest.approx(factors)


@pytest.mark.parametrize(
    ("key", "value"),
    [("period_mult", 0.5), ("period_steps", 0), ("min_lr_ratio", 2.0), ("warmup_steps", -1)],
)
def test_invalid_parameters_are_an_error(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{key}={value}"):
        cosine_restarts(0, 1, **(PUBLISHED | {key: value}))
