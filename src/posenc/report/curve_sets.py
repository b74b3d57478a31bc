"""The curves of an experiment, collected from the evaluation rows and arrays of its runs."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from posenc.report.curve_data import Curve, CurveSet, Measurement, Point
from posenc.report.experiment import Experiment, Run
from posenc.runs.evaluation_rows import bin_positions, positions_name

BY_POSITION = "by_position"
TASKS = "tasks"
TASK_DATA = "task_"
"""The beginning of the names of data on which only accuracy is meaningful."""
Sample = tuple[float, int]  # value, tokens scored


def loss_curves(experiment: Experiment) -> list[CurveSet]:
    """Return loss by evaluation length; from rows by position only where there are no others.

    Tasks are left out: there a loss measures how sure a model is of wrong answers.
    """
    rows = [
        (run, row)
        for run, row in _rows(experiment)
        if row["protocol"] != TASKS and not row["data_name"].startswith(TASK_DATA)
    ]
    whole = [(run, row) for run, row in rows if row["protocol"] != BY_POSITION]
    collector = _Collector(experiment)
    for run, row in whole or rows:
        collector.add(_measurement(row), run, row["length"], (row["loss"], row["count"]))
    return collector.curve_sets()


def accuracy_curves(experiment: Experiment) -> list[CurveSet]:
    """Return accuracy by evaluation length, a set for each task and training length."""
    collector = _Collector(experiment)
    for run, row in _rows(experiment):
        if row["protocol"] == TASKS and row.get("accuracy") is not None:
            sample = (row["accuracy"], row["count"])
            collector.add(_measurement(row), run, row["length"], sample)
    return [_without_shared_settings(curves) for curves in collector.curve_sets()]


def position_curves(experiment: Experiment) -> list[CurveSet]:
    """Return loss by position in bins, at the longest window of each training length."""
    collector, longest = _Collector(experiment), _longest_windows(experiment)
    for run, row, name in _rows_by_position(experiment):
        measurement = _measurement(row)
        if row["length"] == longest[measurement, run.train_length]:
            sums, counts = run.positions[f"{name}.sum"], run.positions[f"{name}.count"]
            for position, loss, count in bin_positions(sums, counts, run.train_length):
                collector.add(measurement, run, position, (loss, count))
    return [
        replace(curves, window=longest[curves.measurement, curves.train_length])
        for curves in collector.curve_sets()
    ]


def _without_shared_settings(curves: CurveSet) -> CurveSet:
    """Return curves whose labels leave out the settings that all of them share."""
    words = [curve.label.split(" ") for curve in curves.curves]
    shared = set.intersection(*(set(settings) for _, *settings in words))
    labels = [
        " ".join([name, *(word for word in settings if word not in shared)])
        for name, *settings in words
    ]
    pairs = zip(curves.curves, labels, strict=True)
    return replace(curves, curves=tuple(replace(curve, label=label) for curve, label in pairs))


class _Collector:
    """Values of single seeds, grouped by what they can be averaged and compared with."""

    def __init__(self, experiment: Experiment) -> None:
        self._train_data = {run.config["frozen"]["fingerprint"] for run in experiment.runs}
        self._encodings: dict[str, str] = {}
        self._sets: defaultdict[
            tuple[Measurement, int], dict[str, dict[float, dict[int, Sample]]]
        ] = defaultdict(dict)

    def add(self, measurement: Measurement, run: Run, place: float, sample: Sample) -> None:
        self._encodings[run.label] = run.encoding
        curve = self._sets[measurement, run.train_length].setdefault(run.label, {})
        curve.setdefault(place, {})[run.seed] = sample

    def curve_sets(self) -> list[CurveSet]:
        """Return all sets, those on the data that the runs were trained on first."""
        return [
            CurveSet(measurement, length, tuple(map(self._curve, curves, curves.values())))
            for (measurement, length), curves in sorted(
                self._sets.items(), key=lambda item: self._sort_key(*item[0])
            )
        ]

    def _curve(self, label: str, places: dict[float, dict[int, Sample]]) -> Curve:
        points = tuple(_point(place, places[place]) for place in sorted(places))
        return Curve(label, self._encodings[label], points)

    def _sort_key(self, of: Measurement, train_length: int) -> tuple[Any, ...]:
        other_data = of.data not in self._train_data
        measurement = (of.data_name, of.split, of.protocol, of.stride or 0, of.swap or "")
        return (other_data, *measurement, of.data, train_length)


def _point(place: float, samples: dict[int, Sample]) -> Point:
    seeds = tuple(sorted(samples))
    values = tuple(samples[seed][0] for seed in seeds)
    return Point(place, values, seeds, max(count for _, count in samples.values()))


def _measurement(row: dict[str, Any]) -> Measurement:
    names = ("data", "data_name", "split", "protocol", "stride", "swap")
    return Measurement(**{name: row[name] for name in names})


def _rows(experiment: Experiment) -> Iterator[tuple[Run, dict[str, Any]]]:
    return ((run, row) for run in experiment.evaluated for row in run.rows)


def _rows_by_position(experiment: Experiment) -> Iterator[tuple[Run, dict[str, Any], str]]:
    """Yield every row that has losses by position, with the name of its arrays."""
    for run, row in _rows(experiment):
        name = positions_name(row)
        if row["protocol"] == BY_POSITION and f"{name}.sum" in run.positions:
            yield run, row, name


def _longest_windows(experiment: Experiment) -> dict[tuple[Measurement, int], int]:
    longest: dict[tuple[Measurement, int], int] = {}
    for run, row, _ in _rows_by_position(experiment):
        key = (_measurement(row), run.train_length)
        longest[key] = max(longest.get(key, 0), row["length"])
    return longest
