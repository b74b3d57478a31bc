"""Curves over evaluation length and over position, each point averaged over seeds."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, exp, floor, log2, sqrt
from typing import Any

import numpy as np

from posenc.record.evaluation import positions_name
from posenc.report.collect import Experiment, Run

BINS_PER_OCTAVE = 4
BY_POSITION = "by_position"


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
    """A mean loss over seeds with the lowest and the highest of them, in nats per token.

    `at` is an evaluation length or a position, in tokens; `count` the tokens scored by a seed.
    """

    at: float
    loss: float
    low: float
    high: float
    seeds: tuple[int, ...]
    count: int

    @property
    def perplexity(self) -> float:
        return exp(self.loss)


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
        return min(found, key=lambda item: item[1].loss) if found else None


Sample = tuple[int, float, int]  # seed, loss in nats, tokens scored


def length_panels(experiment: Experiment) -> list[Panel]:
    """Loss against evaluation length, from rows by position only where there are no others."""
    rows = [(run, row) for run in experiment.measured for row in run.rows]
    whole = [(run, row) for run, row in rows if row["protocol"] != BY_POSITION]
    samples = _Samples()
    for run, row in whole or rows:
        samples.add(_measurement(row), run, row["length"], (run.seed, row["loss"], row["count"]))
    return samples.panels(experiment)


def position_panels(experiment: Experiment) -> list[Panel]:
    """Loss against position in bins, at the longest window measured for each training length."""
    samples, longest = _Samples(), _longest_windows(experiment)
    for run, row, name in _rows_by_position(experiment):
        measurement = _measurement(row)
        if row["length"] == longest[measurement, run.train_length]:
            sums, counts = run.positions[f"{name}.sum"], run.positions[f"{name}.count"]
            for at, loss, count in binned(sums, counts, run.train_length):
                samples.add(measurement, run, at, (run.seed, loss, count))
    return [
        replace(panel, window=longest[panel.measurement, panel.train_length])
        for panel in samples.panels(experiment)
    ]


def binned(
    sums: np.ndarray, counts: np.ndarray, train_length: int
) -> list[tuple[float, float, int]]:
    """(position from 1, mean loss, tokens) of log-spaced bins over the positions of a window.

    One bin ends at the training length, so that none mixes positions on either side of it.
    """
    first = floor(-BINS_PER_OCTAVE * log2(train_length))
    last = ceil(BINS_PER_OCTAVE * log2(len(sums) / train_length))
    ends = np.floor(train_length * 2 ** (np.arange(first, last) / BINS_PER_OCTAVE)).astype(int)
    edges = np.unique(np.clip([0, *ends, len(sums)], 0, len(sums))).tolist()
    bins = []
    for start, end in pairwise(edges):
        tokens = int(counts[start:end].sum())
        if tokens:
            centre = sqrt((start + 1) * end)
            bins.append((centre, float(sums[start:end].sum()) / tokens, tokens))
    return bins


class _Samples:
    """Losses of single seeds, gathered by what they may be averaged with."""

    def __init__(self) -> None:
        self._of: defaultdict[Any, dict[int, Sample]] = defaultdict(dict)

    def add(self, measurement: Measurement, run: Run, at: float, sample: Sample) -> None:
        self._of[measurement, run.train_length, run.label, at][run.seed] = sample

    def panels(self, experiment: Experiment) -> list[Panel]:
        """Panels of the data that the runs were trained on first."""
        own = {run.config["frozen"]["fingerprint"] for run in experiment.runs}
        keys = {(measurement, length) for measurement, length, _, _ in self._of}
        return [
            Panel(measurement, length, self._series(experiment, measurement, length))
            for measurement, length in sorted(keys, key=lambda key: _order(own, *key))
        ]

    def _series(
        self, experiment: Experiment, measurement: Measurement, length: int
    ) -> tuple[Series, ...]:
        families = {run.label: run.encoding for run in experiment.runs}
        places: defaultdict[str, list[Point]] = defaultdict(list)
        for (m, n, label, at), samples in self._of.items():
            if (m, n) == (measurement, length):
                places[label].append(_point(at, list(samples.values())))
        return tuple(
            Series(label, family, tuple(sorted(places[label], key=lambda point: point.at)))
            for label, family in families.items()
            if label in places
        )


def _point(at: float, samples: Sequence[Sample]) -> Point:
    losses = [loss for _, loss, _ in samples]
    seeds = tuple(sorted(seed for seed, _, _ in samples))
    mean = sum(losses) / len(losses)
    return Point(at, mean, min(losses), max(losses), seeds, max(count for _, _, count in samples))


def _measurement(row: dict[str, Any]) -> Measurement:
    names = ("data", "data_name", "split", "protocol", "stride", "swap")
    return Measurement(**{name: row[name] for name in names})


def _order(own: set[str], measurement: Measurement, length: int) -> tuple[Any, ...]:
    return (measurement.data not in own, str(measurement), measurement.data, length)


def _rows_by_position(experiment: Experiment) -> Iterator[tuple[Run, dict[str, Any], str]]:
    """Every row whose losses by position are there, with what they are called."""
    for run in experiment.measured:
        for row in run.rows:
            name = positions_name(row)
            if row["protocol"] == BY_POSITION and f"{name}.sum" in run.positions:
                yield run, row, name


def _longest_windows(experiment: Experiment) -> dict[tuple[Measurement, int], int]:
    longest: dict[tuple[Measurement, int], int] = {}
    for run, row, _ in _rows_by_position(experiment):
        key = (_measurement(row), run.train_length)
        longest[key] = max(longest.get(key, 0), row["length"])
    return longest
