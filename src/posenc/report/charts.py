"""What a figure of lines shows and how its axes run, decided once for paper and page."""

from collections.abc import Callable
from dataclasses import dataclass

from posenc.report.bands import Band, band_text
from posenc.report.style import Style
from posenc.report.ticks import log_ticks, spread, tick_texts, x_ticks

LOG_FROM = 4.0  # a range whose end is this many times its start asks for a log axis


@dataclass(frozen=True)
class Dot:
    """A point of a line: `at` on the x axis, with a band of its own where that is measured too."""

    at: float
    band: Band
    across: Band | None = None
    note: str = ""

    def shown(self, show: Callable[[float], float]) -> "Dot":
        """The dot on another scale, as perplexities for losses."""
        mean, low, high = map(show, (self.band.mean, self.band.low, self.band.high))
        return Dot(self.at, Band(mean, low, high, self.band.seeds), self.across, self.note)


@dataclass(frozen=True)
class Line:
    """One line; a published one has no band and is drawn hollow and dashed."""

    label: str
    style: Style
    dots: tuple[Dot, ...]
    published: bool = False

    @property
    def name(self) -> str:
        return f"{self.label} (published)" if self.published else self.label


@dataclass(frozen=True)
class Mark:
    """A vertical line where something changes, and what it is, `drop` lines of text lower."""

    at: float
    text: str
    dotted: bool = False
    drop: int = 0


@dataclass(frozen=True)
class Frame:
    """Lines that share axes. Frames of one `group` share the range of y too.

    `unit` is what the ticks of x are a power of two times of; without it they are round numbers.
    """

    heading: str
    lines: tuple[Line, ...]
    group: str
    marks: tuple[Mark, ...] = ()
    unit: int | None = None


@dataclass(frozen=True)
class Chart:
    """Frames side by side under one title; `file` is the stem of what they are written to.

    `shared` is what all frames have in common, `reading` how they are to be read, and `csv` every
    point of them. `ratio` says that y may stand on a log axis, `bounds` what it shows in any case.
    """

    file: str
    title: str
    x_name: str
    y_name: str
    frames: tuple[Frame, ...]
    ratio: bool
    reading: str
    csv: str
    shared: str = ""
    bounds: tuple[float, ...] = ()

    @property
    def subtitle(self) -> str:
        """What all frames have in common, and what a point and its band are."""
        bands = band_text(d.band for line in self.measured for d in line.dots)
        return ". ".join(text for text in (self.shared, bands) if text)

    @property
    def measured(self) -> list[Line]:
        return [line for frame in self.frames for line in frame.lines if not line.published]

    def x_range(self, frame: Frame) -> tuple[float, float]:
        dots = [dot for line in frame.lines for dot in line.dots]
        ends = [end for d in dots if d.across for end in (d.across.low, d.across.high)]
        places = [*(dot.at for dot in dots), *ends, *(mark.at for mark in frame.marks)]
        return spread(min(places), max(places), True)

    def x_ticks(self, frame: Frame) -> tuple[list[float], list[str]]:
        low, high = self.x_range(frame)
        if frame.unit is None:
            at = log_ticks(low, high)
            return at, list(tick_texts(at))
        tokens = x_ticks(low, high, frame.unit)
        return [float(n) for n in tokens], [str(n) for n in tokens]

    def y_range(self, frame: Frame) -> tuple[float, float]:
        """The range of all frames of the same group, so that they can be compared."""
        low, high = self._extremes(frame)
        return spread(low, high, self.log_y(frame))

    def log_y(self, frame: Frame) -> bool:
        low, high = self._extremes(frame)
        return self.ratio and high / low > LOG_FROM

    def _extremes(self, frame: Frame) -> tuple[float, float]:
        alike = [other for other in self.frames if other.group == frame.group]
        bands = [dot.band for other in alike for line in other.lines for dot in line.dots]
        ends = [end for band in bands for end in (band.low, band.high)]
        return min((*ends, *self.bounds)), max((*ends, *self.bounds))
