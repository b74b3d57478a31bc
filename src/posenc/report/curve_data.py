"""Curves over evaluation length or position: one point for each place, averaged over seeds."""

from dataclasses import dataclass
from functools import cached_property
from math import exp

from posenc.report.confidence import Band, band

PROTOCOL_NAMES = {
    "nonoverlapping": "non-overlapping windows",
    "by_position": "by position",
    "sliding": "sliding window",
    "last_k": "last tokens of a window",
    "fixed_target": "fixed targets",
    "tasks": "answers of a task",
}
SWAP_NAMES = {
    "pi": "position interpolation (PI)",
    "ntk": "NTK-aware scaling",
    "yarn": "YaRN",
    "dynamic": "dynamic NTK",
    "dynamic_ntk": "dynamic NTK",
    "llama3": "Llama 3 scaling",
    "log_n": "log-n scaling",
    "window": "a window",
}


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
        protocol = PROTOCOL_NAMES.get(self.protocol, self.protocol)
        stride = f", stride {self.stride}" if self.stride is not None else ""
        name, *settings = (self.swap or "").split(" ")
        swap = f", with {' '.join([SWAP_NAMES.get(name, name), *settings])}" if self.swap else ""
        return f"{self.data_name} {self.split}, {protocol}{stride}{swap}"


@dataclass(frozen=True)
class Point:
    """The values of several seeds at one place: losses in nats per token, or accuracies.

    `at` is an evaluation length or a position, in tokens; `count` the tokens scored per seed.
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
        """The exponential of the mean loss."""
        return exp(self.mean)


@dataclass(frozen=True)
class Curve:
    """One curve; curves of one `encoding` differ in a setting only."""

    label: str
    encoding: str
    points: tuple[Point, ...]

    def at(self, place: float) -> Point | None:
        return next((point for point in self.points if point.at == place), None)

    @property
    def seeds(self) -> str:
        """How many seeds the points have: 3, or 1-3."""
        counts = {len(point.seeds) for point in self.points}
        return "-".join(str(n) for n in dict.fromkeys((min(counts), max(counts))))


@dataclass(frozen=True)
class CurveSet:
    """The curves that can be compared: one measurement, one training length.

    `window` is the length of the windows, where the curves run over positions.
    """

    measurement: Measurement
    train_length: int
    curves: tuple[Curve, ...]
    window: int | None = None

    @property
    def places(self) -> list[float]:
        return sorted({point.at for curve in self.curves for point in curve.points})

    def lowest(self, place: float) -> tuple[str, Point] | None:
        """Return the label and the point of the curve with the lowest value at a place."""
        points = [(curve.label, point) for curve in self.curves if (point := curve.at(place))]
        return min(points, key=lambda pair: pair[1].mean) if points else None


def describe_lengths(lengths: tuple[int, ...], train_length: int) -> list[str]:
    """Return lengths relative to the training length: all as multiples of L, or all as L+k."""
    if all(length % train_length == 0 for length in lengths):
        return ["L" if n == train_length else f"{n // train_length}L" for n in lengths]
    return ["L" if n == train_length else f"L{n - train_length:+}" for n in lengths]
