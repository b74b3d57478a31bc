"""The content of a figure of lines; `line_plot.py` draws it.

    chart = Chart(
        file="decay",
        title="Bias by distance",
        x_title="Distance (tokens)",
        y_title="Bias",
        subplots=(
            Subplot("head 0", (Line("alibi", style_at(0), dots),), y_group="bias"),
        ),
        reading="How to read the figure.",
        csv=csv_text(...),
    )
    figure = line_figure("decay", chart)   # png, svg, csv, and a place on a page

x is logarithmic; y is where `ratio` allows it and the values span more than a factor of 4.
"""

from collections.abc import Callable
from dataclasses import dataclass

from posenc.report.axes import log_ticks, token_ticks, widen
from posenc.report.confidence import Band, describe_bands
from posenc.report.encoding_styles import Style

LOG_FROM = 4.0  # a range whose end is this many times its start asks for a log axis


@dataclass(frozen=True)
class Dot:
    """A point of a line, with a band in y and, where x was measured too, one in x."""

    x: float
    y: Band
    x_band: Band | None = None
    note: str = ""

    def transformed(self, function: Callable[[float], float]) -> "Dot":
        """Return the dot with y on another scale, as perplexities for losses."""
        mean, low, high = map(function, (self.y.mean, self.y.low, self.y.high))
        return Dot(self.x, Band(mean, low, high, self.y.seeds), self.x_band, self.note)


@dataclass(frozen=True)
class Line:
    """One line; a published one has no band and is drawn thin, dashed and with hollow markers."""

    label: str
    style: Style
    dots: tuple[Dot, ...]
    published: bool = False

    @property
    def name(self) -> str:
        return f"{self.label} (published)" if self.published else self.label


@dataclass(frozen=True)
class VerticalLine:
    """A vertical line with its text at the upper end, in the `row` of text from the top."""

    x: float
    text: str
    dotted: bool = False
    row: int = 0


@dataclass(frozen=True)
class Subplot:
    """Lines on one pair of axes. Subplots of one `y_group` share the range of y.

    The ticks of x are `tick_unit` times powers of two; without it they are round numbers.
    """

    title: str
    lines: tuple[Line, ...]
    y_group: str
    vertical_lines: tuple[VerticalLine, ...] = ()
    tick_unit: int | None = None


@dataclass(frozen=True)
class Chart:
    """Subplots under one title; `file` is the stem of the files that it is written to.

    `shared` says what all subplots have in common, `reading` how to read them; `csv` has every
    point. With `ratio` points are geometric means and y may be logarithmic; `bounds` are values
    that y includes in any case.
    """

    file: str
    title: str
    x_title: str
    y_title: str
    subplots: tuple[Subplot, ...]
    reading: str
    csv: str
    ratio: bool = False
    shared: str = ""
    bounds: tuple[float, ...] = ()

    @property
    def lines(self) -> list[Line]:
        """Every line once, by its name."""
        lines = (line for subplot in self.subplots for line in subplot.lines)
        return list({line.name: line for line in lines}.values())

    @property
    def subtitle(self) -> str:
        """What all subplots have in common, and what a point and its band are."""
        lines = (line for subplot in self.subplots for line in subplot.lines if not line.published)
        dots = (dot.y for line in lines for dot in line.dots)
        bands = describe_bands(dots, geometric=self.ratio)
        return ". ".join(text for text in (self.shared, bands) if text)

    def x_range(self, subplot: Subplot) -> tuple[float, float]:
        dots = [dot for line in subplot.lines for dot in line.dots]
        ends = [end for dot in dots if dot.x_band for end in (dot.x_band.low, dot.x_band.high)]
        values = [*(dot.x for dot in dots), *ends, *(line.x for line in subplot.vertical_lines)]
        return widen(min(values), max(values), log=True)

    def x_ticks(self, subplot: Subplot) -> list[float]:
        low, high = self.x_range(subplot)
        if subplot.tick_unit is None:
            return log_ticks(low, high)
        return [float(tick) for tick in token_ticks(low, high, subplot.tick_unit)]

    def y_range(self, subplot: Subplot, *, log: bool) -> tuple[float, float]:
        """Return the range of all subplots of the same group, so that they can be compared."""
        return widen(*self._extremes(subplot), log=log)

    def log_y(self, subplot: Subplot) -> bool:
        """Whether y is better read on a log axis."""
        low, high = self._extremes(subplot)
        return self.ratio and high / low > LOG_FROM

    def _extremes(self, subplot: Subplot) -> tuple[float, float]:
        group = [other for other in self.subplots if other.y_group == subplot.y_group]
        bands = [dot.y for other in group for line in other.lines for dot in line.dots]
        ends = [end for band in bands for end in (band.low, band.high)]
        return min((*ends, *self.bounds)), max((*ends, *self.bounds))
