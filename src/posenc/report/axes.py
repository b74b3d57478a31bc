"""Ranges and ticks of axes."""

from math import ceil, floor, log2, log10

MAX_TICKS = 8
LINEAR_TICKS_MAX_RATIO = 3.0  # a log axis with a smaller high / low has linear ticks
TICK_LABEL = "replace(format(datum.value, abs(datum.value) < 1e5 ? '~r' : '.0e'), '+', '')"
"""Vega expression that formats a tick label: 0.5, 16384, 1e5."""
AXIS_MARGIN = 0.06  # on each side, as a fraction of the range


def token_ticks(low: float, high: float, train_length: int) -> list[int]:
    """Return at most MAX_TICKS ticks: the training length times powers of two."""
    first, last = ceil(log2(low / train_length)), floor(log2(high / train_length))
    step = max(1, ceil((last - first + 1) / MAX_TICKS))
    return [round(train_length * 2.0**i) for i in range(first, last + 1) if i % step == 0]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers within the range of a log axis, denser if the range is narrow."""
    if high / low < LINEAR_TICKS_MAX_RATIO:
        return linear_ticks(low, high)
    decades = log10(high) - log10(low)
    mantissas = (1, 2, 5) if decades > 1 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    if decades > 3.5:
        mantissas, step = (1,), ceil(decades / MAX_TICKS)
        powers = [power for power in powers if power % step == 0]
    ticks = (float(f"{m}e{power}") for power in powers for m in mantissas)
    return [tick for tick in ticks if low <= tick <= high]


def linear_ticks(low: float, high: float) -> list[float]:
    """Return four to ten ticks in a range: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10((high - low) / 4))
    step = next(m * power for m in (5, 2, 1) if m * power <= (high - low) / 4)
    digits = max(0, -floor(log10(step)))
    return [round(i * step, digits) for i in range(ceil(low / step), floor(high / step) + 1)]


def widen(low: float, high: float, *, log: bool) -> tuple[float, float]:
    """Return the range with a margin on each side; a single value becomes a range of width 1."""
    if log:
        start, end = widen(log10(low), log10(high), log=False)
        return 10**start, 10**end
    margin = AXIS_MARGIN * (high - low) or 0.5
    return low - margin, high + margin
