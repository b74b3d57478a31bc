"""Means over seeds and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.stats import t

FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, its standard deviation and its t interval; none of a single seed."""

    mean: float
    deviation: float | None
    low: float | None
    high: float | None


def estimate(values: Sequence[float], confidence: float) -> Estimate:
    """The mean of `values` with Student's t interval, n - 1 degrees of freedom."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return Estimate(mean, None, None, None)
    deviation = stdev(values)
    half = float(t.ppf((1 + confidence) / 2, count - 1)) * deviation / sqrt(count)
    return Estimate(mean, deviation, mean - half, mean + half)
