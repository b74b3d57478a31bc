"""Schedules as functions `(step, total, ...) -> factor` on the learning rate.

`step` counts from 0, the first optimizer step; `warmup` is a share of all steps but where it
says otherwise.
"""

import math


def cosine(step: int, total: int, *, warmup: float, floor: float) -> float:
    """Linear warm-up, then half a cosine from 1 down to `floor` (Loshchilov & Hutter 2017)."""
    if not 0 <= floor <= 1:
        raise ValueError(f"floor={floor} is a share of the peak; give 0 to 1")
    rising = _warmup_steps(total, warmup)
    if step < rising:
        return (step + 1) / rising
    progress = (step - rising) / max(1, total - rising)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def constant(step: int, total: int, *, warmup: float) -> float:
    """Linear warm-up, then 1."""
    return min(1.0, (step + 1) / _warmup_steps(total, warmup))


def cosine_restarts(
    step: int,
    total: int,
    *,
    warmup_steps: int,
    start: float,
    period_steps: int,
    growth: float,
    shrink: float,
    floor: float,
) -> float:
    """Linear warm-up from `start`, then cosines from 1 to `floor`, again and again (1608.03983).

    Each period is `growth` times as long as the one before it, its peak and floor `shrink` times
    as high. In steps, as fairseq's `cosine` has it: of `total` nothing depends.
    """
    if warmup_steps < 0 or period_steps < 1 or growth < 1:
        raise ValueError(
            f"warmup_steps={warmup_steps} must be 0 or more, period_steps={period_steps} and"
            f" growth={growth} 1 or more"
        )
    for name, share in (("start", start), ("floor", floor), ("shrink", shrink)):
        if not 0 <= share <= 1:
            raise ValueError(f"{name}={share} is a share; give 0 to 1")
    if step < warmup_steps:
        return start + (1 - start) * step / warmup_steps
    into, period, peak = step - warmup_steps, float(period_steps), 1.0
    while into >= period:
        into, period, peak = into - period, period * growth, peak * shrink
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * into / period)))


def _warmup_steps(total: int, warmup: float) -> int:
    if not 0 <= warmup <= 1:
        raise ValueError(f"warmup={warmup} is a share of all steps; give 0 to 1")
    return max(1, round(total * warmup))
