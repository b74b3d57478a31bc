"""Curves over evaluation length and over position, each point averaged over seeds."""

from dataclasses import dataclass
from functools import cached_property
from math import exp

from posenc.report.bands import Band, band


@dataclass(frozen=True)
class Measurement:
    """What was measured: the key of an evaluation row without its length."""

    data: str
    data_name: str
    split: str
    protocol: str
    stride: int | None
    swap: str | None

    def __str__(self) -> str:
        stride = f", stride {self.stride}" if self.stride is not None else ""
        swap = f", {self.swap} exchanged in" if self.swap is not None else ""
        return f"{self.data_name} {self.split}, {self.protocol}{stride}{swap}"


@dataclass(frozen=True)
class Point:
    """What was measured at one place, a value for each seed: nats per token, or an accuracy.

    `at` is an evaluation length or a position, in tokens; `count` the tokens scored by a seed.
    """

    at: float
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    count: int

    @cached_property
    def band(self) -> Band:
        return band(self.values)

    @property
    def mean(self) -> float:
        return self.band.mean

    @property
    def perplexity(self) -> float:
        return exp(self.mean)


@dataclass(frozen=True)
class Series:
    """One encoding's curve; series of one `family` differ in a knob only."""

    label: str
    family: str
    points: tuple[Point, ...]

    def at(self, where: float) -> Point | None:
        return next((point for point in self.points if point.at == where), None)


@dataclass(frozen=True)
class Panel:
    """The series that may be compared: one measurement, one training length.

    `window` is the length of the windows whose positions are shown, in a panel over positions.
    """

    measurement: Measurement
    train_length: int
    series: tuple[Series, ...]
    window: int | None = None

    @property
    def places(self) -> list[float]:
        return sorted({point.at for series in self.series for point in series.points})

    def lowest(self, at: float) -> tuple[str, Point] | None:
        """The label and the point of the series with the lowest loss at a place."""
        found = [(series.label, point) for series in self.series if (point := series.at(at))]
        return min(found, key=lambda item: item[1].mean) if found else None
