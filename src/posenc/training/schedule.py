"""Schedules as functions `(step, total, ...) -> factor` on the learning rate.

`step` counts from 0, the first optimizer step; `warmup` is a share of all steps.
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


def _warmup_steps(total: int, warmup: float) -> int:
    if not 0 <= warmup <= 1:
        raise ValueError(f"warmup={warmup} is a share of all steps; give 0 to 1")
    return max(1, round(total * warmup))
