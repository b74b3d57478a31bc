"""Learning-rate schedules: functions `(step, total_steps, ...)` that return a fraction of the peak.

`step` counts optimizer steps from 0. Parameters called `..._fraction` are fractions of
`total_steps`; parameters called `..._ratio` are fractions of the peak learning rate. A subclass of
`torch.optim.lr_scheduler.LRScheduler` can also be used, and so can a function `(optimizer, ...)`
that returns a scheduler, such as a `SequentialLR`.
"""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from posenc.config.user_code import definition_location

Schedule = Callable[[int, int], float]


def build_scheduler(
    schedule: Callable[..., Any], optimizer: Optimizer, total_steps: int
) -> LRScheduler:
    """Return the scheduler of a run, which is stepped once after each optimizer step.

    `schedule` is a `Schedule`, a subclass of LRScheduler, or any other function whose first
    parameter is called `optimizer` and that returns an LRScheduler; its other parameters are bound.
    Raises ValueError if the scheduler ends before the run does or needs a metric, and TypeError if
    a function returns anything else. Errors raised by the scheduler's constructor propagate.
    """
    if next(iter(inspect.signature(schedule).parameters), None) != "optimizer":
        return LambdaLR(optimizer, lambda step: schedule(step, total_steps))
    scheduler = schedule(optimizer)
    target = schedule.func if isinstance(schedule, partial) else schedule
    if not isinstance(scheduler, LRScheduler):
        raise TypeError(
            f"{definition_location(target)}: {target.__qualname__} returned"
            f" {type(scheduler).__name__}, but must return a torch LRScheduler, because its first"
            f" parameter is the optimizer"
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        raise ValueError("ReduceLROnPlateau needs a metric; use another scheduler")
    limit = getattr(scheduler, "total_steps", total_steps)  # only OneCycleLR has it
    if limit < total_steps:
        raise ValueError(
            f"total_steps={limit} is less than the {total_steps} optimizer steps of the run"
        )
    return scheduler


def cosine(step: int, total_steps: int, *, warmup_fraction: float, min_lr_ratio: float) -> float:
    """Linear warmup, then cosine decay to `min_lr_ratio` (Loshchilov & Hutter 2017)."""
    _check_fractions(min_lr_ratio=min_lr_ratio)
    warmup_steps = _warmup_steps(total_steps, warmup_fraction)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return min_lr_ratio + (1 - min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def constant(step: int, total_steps: int, *, warmup_fraction: float) -> float:
    """Linear warmup, then a constant rate."""
    return min(1.0, (step + 1) / _warmup_steps(total_steps, warmup_fraction))


def cosine_restarts(
    step: int,
    total_steps: int,
    *,
    warmup_steps: int,
    warmup_init_ratio: float,
    period_steps: int,
    period_mult: float,
    lr_shrink: float,
    min_lr_ratio: float,
) -> float:
    """Linear warmup, then cosine decay with warm restarts, as in fairseq's `cosine` schedule.

    This is SGDR (Loshchilov & Hutter 2017): each period is `period_mult` times as long as the
    previous one, and its peak and minimum are multiplied by `lr_shrink`. All durations are in
    steps, so `total_steps` has no effect.
    """
    if warmup_steps < 0 or period_steps < 1 or period_mult < 1:
        raise ValueError(
            f"warmup_steps={warmup_steps} must be non-negative, and period_steps={period_steps}"
            f" and period_mult={period_mult} must be at least 1"
        )
    _check_fractions(
        warmup_init_ratio=warmup_init_ratio, min_lr_ratio=min_lr_ratio, lr_shrink=lr_shrink
    )
    if step < warmup_steps:
        return warmup_init_ratio + (1 - warmup_init_ratio) * step / warmup_steps
    step_in_period, period, peak = step - warmup_steps, float(period_steps), 1.0
    while step_in_period >= period:
        step_in_period -= period
        period, peak = period * period_mult, peak * lr_shrink
    decay = 0.5 * (1 + math.cos(math.pi * step_in_period / period))
    return peak * (min_lr_ratio + (1 - min_lr_ratio) * decay)


def _check_fractions(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} must be between 0 and 1")


def _warmup_steps(total_steps: int, warmup_fraction: float) -> int:
    _check_fractions(warmup_fraction=warmup_fraction)
    return max(1, round(total_steps * warmup_fraction))
