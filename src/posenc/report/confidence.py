"""Means over seeds with their confidence intervals."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy.special import stdtrit

CONFIDENCE = 0.95
MIN_SEEDS = 3
"""The minimum number of seeds for a verdict or, in result tables and figures, for a t interval."""


@dataclass(frozen=True)
class TInterval:
    """A mean and its t interval; `low` and `high` are None for a single value."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Band:
    """A mean with its t interval, or with the minimum and maximum if there are too few seeds.

    `seeds` is 0 for a value that is shown without uncertainty.
    """

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def is_t_interval(self) -> bool:
        return self.seeds >= MIN_SEEDS

    @property
    def description(self) -> str:
        """A description of `low` and `high`; empty if there are fewer than two seeds."""
        if self.seeds <= 1:
            return ""
        if self.is_t_interval:
            return f"{CONFIDENCE:.0%} t interval of {self.seeds} seeds"
        return f"minimum and maximum over {self.seeds} seeds"


def t_interval(values: Sequence[float], confidence: float) -> TInterval:
    """Return the mean of `values` with Student's t interval (n - 1 degrees of freedom)."""
    mean, count = fmean(values), len(values)
    if count == 1:
        return TInterval(mean, None, None)
    half_width = float(stdtrit(count - 1, (1 + confidence) / 2)) * stdev(values) / sqrt(count)
    return TInterval(mean, mean - half_width, mean + half_width)


def band(values: Sequence[float]) -> Band:
    """Return the mean and band of `values`, one per seed."""
    interval = t_interval(values, CONFIDENCE)
    if len(values) < MIN_SEEDS or interval.low is None or interval.high is None:
        return Band(interval.mean, min(values), max(values), len(values))
    return Band(interval.mean, interval.low, interval.high, len(values))


def zero_width_band(value: float) -> Band:
    """Return a band for a value that is shown without uncertainty, such as a chance level."""
    return Band(value, value, value, 0)


def format_range(counts: Collection[int]) -> str:
    """Return the numbers as text: "3", or "1-3" if they vary."""
    return "-".join(str(n) for n in dict.fromkeys((min(counts), max(counts))))


def describe_bands(bands: Iterable[Band], *, geometric: bool = False) -> str:
    """Return the part of a figure's subtitle that describes its points and bands."""
    counts = {band.seeds for band in bands} - {0}
    if not counts:
        return ""
    if counts == {1}:
        return "One seed"
    mean = f"{'Geometric mean' if geometric else 'Mean'} of {format_range(counts)} seeds"
    interval = f"its {CONFIDENCE:.0%} t interval"
    if max(counts) < MIN_SEEDS:
        return f"{mean}; the band runs from the lowest to the highest value"
    if min(counts - {1}) >= MIN_SEEDS:
        return f"{mean}; the band is {interval}"
    return (
        f"{mean}; the band is {interval} for {MIN_SEEDS} seeds or more, and runs from the lowest to"
        " the highest value otherwise"
    )
