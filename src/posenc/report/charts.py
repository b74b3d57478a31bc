"""What a figure shows and how its axes run, decided once for paper and page."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, exp, floor, log2, log10

from posenc.report.curves import Panel, Point

LOG_FROM = 4.0  # a range whose end is this many times its start asks for a log axis
MOST_TICKS = 8
MARGIN = 0.06  # of the axis, on either side


@dataclass(frozen=True)
class Chart:
    """Panels drawn side by side under one title; `file` is the stem of what it is written to."""

    file: str
    title: str
    at: str
    x_name: str
    y_name: str
    panels: tuple[Panel, ...]
    in_perplexity: bool
    band: str

    def values(self, point: Point) -> tuple[float, float, float]:
        """Mean, lowest and highest of a point, in nats or as perplexities."""
        nats = (point.loss, point.low, point.high)
        return (exp(nats[0]), exp(nats[1]), exp(nats[2])) if self.in_perplexity else nats

    @property
    def subtitle(self) -> str:
        """What all panels share: the measurement, if it is one, and what a point is."""
        measurements = {str(panel.measurement) for panel in self.panels}
        return ". ".join([*(measurements if len(measurements) == 1 else ()), self.band])

    def heading(self, panel: Panel) -> str:
        length = f"trained at L = {panel.train_length}"
        length += f", read in windows of {panel.window}" if panel.window else ""
        alike = len({other.measurement for other in self.panels}) == 1
        return length if alike else f"{length}\n{panel.measurement}"

    def x_range(self, panel: Panel) -> tuple[float, float]:
        places = [*panel.places, panel.train_length]
        return spread(min(places), max(places), True)

    def y_range(self, panel: Panel) -> tuple[float, float]:
        """The range of all panels of the same measurement, so that they can be compared."""
        low, high = self._extremes(panel)
        return spread(low, high, self.log_y(panel))

    def log_y(self, panel: Panel) -> bool:
        low, high = self._extremes(panel)
        return self.in_perplexity and high / low > LOG_FROM

    def _extremes(self, panel: Panel) -> tuple[float, float]:
        alike = [other for other in self.panels if other.measurement == panel.measurement]
        values = [
            self.values(point)
            for other in alike
            for series in other.series
            for point in series.points
        ]
        return min(low for _, low, _ in values), max(high for _, _, high in values)


def x_ticks(low: float, high: float, train_length: int) -> list[int]:
    """The training length times powers of two, at most MOST_TICKS of them."""
    first, last = ceil(log2(low / train_length)), floor(log2(high / train_length))
    step = max(1, ceil((last - first + 1) / MOST_TICKS))
    return [round(train_length * 2.0**i) for i in range(first, last + 1) if i % step == 0]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers within the range, denser where it spans less."""
    mantissas = (1, 2, 5) if high / low > 10 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    if high / low > 10**4:
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
