"""Where an axis begins, ends and has its ticks."""

from collections.abc import Iterator
from math import ceil, floor, log2, log10

from matplotlib.ticker import MaxNLocator

MOST_TICKS = 8
LINEAR_TO = 3.0  # times its start: a log axis to there is as good as linear
MARGIN = 0.06  # of the axis, on either side


def x_ticks(low: float, high: float, train_length: int) -> list[int]:
    """The training length times powers of two, at most MOST_TICKS of them."""
    first, last = ceil(log2(low / train_length)), floor(log2(high / train_length))
    step = max(1, ceil((last - first + 1) / MOST_TICKS))
    return [round(train_length * 2.0**i) for i in range(first, last + 1) if i % step == 0]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers within the range, denser where it spans less."""
    if high / low < LINEAR_TO:
        return [n for n in map(float, MaxNLocator(6).tick_values(low, high)) if low <= n <= high]
    mantissas = (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    if high / low > 10**3.5:
        mantissas = (1,)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    return [n for power in powers for m in mantissas if low <= (n := m * 10.0**power) <= high]


def spread(low: float, high: float, log: bool) -> tuple[float, float]:
    """A range with a margin on either side, of 1 where it would have no width."""
    if log:
        start, end = spread(log10(low), log10(high), False)
        return 10**start, 10**end
    margin = MARGIN * (high - low) or 0.5
    return low - margin, high + margin


def tick_texts(values: list[float]) -> Iterator[str]:
    return (f"{value:g}" if value < 1e5 else f"{value:.0e}".replace("e+0", "e") for value in values)
