"""The data, labels and ticks of a line chart; `line_plot.line_figure` draws it.

The x axis is logarithmic. With `log_y`, pages offer a logarithmic and a linear y axis; the default
is logarithmic if the values span more than a factor of LOG_Y_RATIO.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log2, log10
from sys import float_info

from posenc.report.confidence import Band, describe_bands
from posenc.report.encoding_styles import PUBLISHED_DASH, Style

LOG_Y_RATIO = 4.0
"""With `log_y`, the y axis is logarithmic by default if max / min is above this ratio."""
MAX_TICKS = 8
LINEAR_TICKS_MAX_RATIO = 3.0  # a log axis with a smaller high / low has linear ticks
TICK_LABEL = "replace(format(datum.value, abs(datum.value) < 1e5 ? '~r' : '.0e'), '+', '')"
"""Vega expression that formats a tick label: 0.5, 16384, 1e5."""
AXIS_MARGIN = 0.06  # on each side, as a fraction of the range


@dataclass(frozen=True)
class PlotPoint:
    """A point on a line; `y` has its mean and band, and its tooltip shows `note`."""

    x: float
    y: Band
    note: str = ""

    def transformed(self, function: Callable[[float], float]) -> "PlotPoint":
        """Return the point with `function` applied to y, for example `exp` to get perplexities."""
        mean, low, high = map(function, (self.y.mean, self.y.low, self.y.high))
        return replace(self, y=Band(mean, low, high, self.y.seeds))


@dataclass(frozen=True)
class Line:
    """One line. A published line has no band and is drawn thin and dashed, with hollow markers."""

    label: str
    style: Style
    points: tuple[PlotPoint, ...]
    published: bool = False

    @property
    def name(self) -> str:
        return f"{self.label} (published)" if self.published else self.label

    @property
    def dash(self) -> tuple[float, ...]:
        return PUBLISHED_DASH if self.published else self.style.dash


@dataclass(frozen=True)
class VerticalLine:
    """A vertical line; its label is `row` rows of text below the upper end of the line."""

    x: float
    label: str
    dotted: bool = False
    row: int = 0


@dataclass(frozen=True)
class Subplot:
    """Lines on one pair of axes. Subplots with the same `y_group` share their y range.

    The x ticks are `tick_unit` times powers of two, or round numbers if it is None.
    """

    title: str
    lines: tuple[Line, ...]
    y_group: str
    vertical_lines: tuple[VerticalLine, ...] = ()
    tick_unit: int | None = None


@dataclass(frozen=True)
class Chart:
    """Subplots under one title; `file_stem` is the stem of the exported file names.

    `common_text` describes what all subplots have in common, `caption` explains how to read them,
    and `csv` lists the points, without reference lines such as chance. With `log_y`, the points are
    geometric means, and the y axis may be logarithmic. The y axis always includes `y_bounds`.
    """

    file_stem: str
    title: str
    x_title: str
    y_title: str
    subplots: tuple[Subplot, ...]
    caption: str
    csv: str
    log_y: bool = False
    common_text: str = ""
    y_bounds: tuple[float, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """The lines of all subplots, without repeated names."""
        lines = (line for subplot in self.subplots for line in subplot.lines)
        return list({line.name: line for line in lines}.values())

    @property
    def subtitle(self) -> str:
        """A description of all subplots and of what their points and bands show."""
        lines = (line for subplot in self.subplots for line in subplot.lines if not line.published)
        bands = (point.y for line in lines for point in line.points)
        description = describe_bands(bands, geometric=self.log_y)
        return ". ".join(filter(None, (self.common_text, description)))

    def x_range(self, subplot: Subplot) -> tuple[float, float]:
        points = [point for line in subplot.lines for point in line.points]
        values = [*(p.x for p in points), *(line.x for line in subplot.vertical_lines)]
        return widen(min(values), max(values), log=True)

    def x_ticks(self, subplot: Subplot) -> Sequence[float]:
        low, high = self.x_range(subplot)
        if subplot.tick_unit is None:
            return log_ticks(low, high)
        return token_ticks(low, high, subplot.tick_unit)

    def defaults_to_log_y(self, subplot: Subplot) -> bool:
        """Return whether the subplot's y axis is logarithmic by default."""
        low, high = self.y_extremes(subplot)
        return self.log_y and high / low > LOG_Y_RATIO

    def y_extremes(self, subplot: Subplot) -> tuple[float, float]:
        """Return the lowest and highest y of all subplots of the same `y_group`."""
        group = [other for other in self.subplots if other.y_group == subplot.y_group]
        bands = [point.y for other in group for line in other.lines for point in line.points]
        values = [y for band in bands for y in (band.low, band.high)]
        return min((*values, *self.y_bounds)), max((*values, *self.y_bounds))


def token_ticks(low: float, high: float, unit: int) -> list[int]:
    """Return at most MAX_TICKS ticks: `unit` (the training length) times powers of two."""
    first, last = ceil(log2(low / unit)), floor(log2(high / unit))
    step = max(1, ceil((last - first + 1) / MAX_TICKS))
    return [round(unit * 2.0**i) for i in range(first, last + 1) if i % step == 0]


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
    """Return the range with a margin on each side.

    A single value becomes a range of width 1, or 2e-6 times the value if that is more. On a log
    axis, the range is one decade.
    """
    if log:
        start, end = widen(log10(low), log10(high), log=False)
        return 10**start, 10 ** min(end, float_info.max_10_exp)
    margin = AXIS_MARGIN * (high - low) or max(0.5, 1e-6 * abs(low))
    return low - margin, high + margin
