"""NAG beside a loop over its formula, and the restarting cosine beside fairseq's closed form."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from posenc.config.compose import compose
from posenc.training.optimizer import nag
from posenc.training.schedule import cosine_restarts

PRINTED: dict[str, Any] = {
    "warmup_steps": 16000,
    "start": 1e-7,
    "period_steps": 270000,
    "growth": 2,
    "shrink": 0.75,
    "floor": 1e-4,
}


class Bowl(nn.Module):
    """A quadratic with curvatures from 0.1 to 3."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64))
        self.curvature = torch.tensor([0.1, 0.5, 1.0, 3.0], dtype=torch.float64)

    def gradient(self, at: Tensor) -> Tensor:
        return self.curvature * at + at.sin()


def descended(bowl: Bowl, optimizer: torch.optim.Optimizer, rates: list[float]) -> Tensor:
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        bowl.at.grad = bowl.gradient(bowl.at.detach())
        optimizer.step()
    return bowl.at.detach()


def by_formula(rates: list[float], momentum: float) -> list[float]:
    """Velocity and weights in plain numbers, with the velocity rescaled when the rate changes."""
    bowl = Bowl()
    at, velocity, before = bowl.at.tolist(), [0.0] * 4, rates[0]
    for rate in rates:
        gradient = bowl.gradient(torch.tensor(at, dtype=torch.float64)).tolist()
        for i in range(4):
            carried = velocity[i] * rate / before
            at[i] += momentum * momentum * carried - (1 + momentum) * rate * gradient[i]
            velocity[i] = momentum * carried - rate * gradient[i]
        before = rate
    return at


@pytest.mark.parametrize(
    "rate", [lambda n: 0.02, lambda n: 0.001 * (n + 1), lambda n: 0.03 * math.cos(n / 40)]
)
def test_nag_is_its_formula_under_any_schedule(rate: Callable[[int], float]) -> None:
    rates, bowl = [rate(n) for n in range(50)], Bowl()
    found = descended(bowl, nag(bowl, learning_rate=1.0, momentum=0.9), rates)
    assert found.tolist() == pytest.approx(by_formula(rates, 0.9), rel=1e-11)


def test_momentum_is_a_share() -> None:
    for momentum in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"momentum={momentum}"):
            nag(Bowl(), learning_rate=1.0, momentum=momentum)


def closed_form(step: int) -> float:
    """The learning rate of a step by the printed flags, in closed form as fairseq computes it."""
    if step < 16000:
        return 1e-7 + step * (1.0 - 1e-7) / 16000
    into = step - 16000
    period = math.floor(math.log(1 - into / 270000 * (1 - 2), 2))
    begun = (1 - 2**period) / (1 - 2) * 270000
    peak, floor = 0.75**period, 1e-4 * 0.75**period
    share = (into - begun) / (2**period * 270000)
    return floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * share))


STEPS = [0, 1, 8000, 15999, 16000, 16001, 150000, 285999, 286000, 286001, 600000, 826000, 1500000]


@pytest.mark.parametrize("step", STEPS)
def test_the_printed_schedule(step: int) -> None:
    assert cosine_restarts(step, 286000, **PRINTED) == pytest.approx(closed_form(step), rel=1e-9)


def test_the_config_is_the_printed_schedule() -> None:
    config = compose("train", ["schedule=cosine_restarts", "optimizer=nag"])
    assert {key: config.schedule[key] for key in PRINTED} == PRINTED
    assert config.optimizer.learning_rate == 1.0


def test_a_restart_falls_short_of_the_peak() -> None:
    last, first = (cosine_restarts(step, 1, **PRINTED) for step in (285999, 286000))
    assert last == pytest.approx(1e-4, rel=1e-3)
    assert first == 0.75


def test_periods_of_one_length_repeat() -> None:
    small: dict[str, Any] = {"warmup_steps": 0, "start": 0.0, "period_steps": 10, "floor": 0.1}
    factors = [cosine_restarts(step, 40, growth=1, shrink=1.0, **small) for step in range(40)]
    assert factors[:10] * 4 == pytest.approx(factors)


@pytest.mark.parametrize(
    "change", [{"growth": 0.5}, {"period_steps": 0}, {"floor": 2.0}, {"warmup_steps": -1}]
)
def test_what_is_no_schedule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))}={next(iter(change.values()))}"):
        cosine_restarts(0, 1, **(PRINTED | change))
