"""The panels of an experiment, gathered from the rows and arrays of its runs."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from posenc.report.collect import Experiment, Run
from posenc.report.curves import Measurement, Panel, Point, Series
from posenc.runs.bins import binned
from posenc.runs.evaluation_rows import positions_name

BY_POSITION = "by_position"
TASKS = "tasks"
TASK_DATA = "task_"  # with which the names of data begin whose answers alone mean something

Sample = tuple[float, int]  # value, tokens scored


def length_panels(experiment: Experiment) -> list[Panel]:
    """Loss against evaluation length, from rows by position only where there are no others.

    What tasks were asked is left out: there a loss says how sure a model is of wrong answers.
    """
    rows = [
        (run, row)
        for run, row in _rows(experiment)
        if row["protocol"] != TASKS and not row["data_name"].startswith(TASK_DATA)
    ]
    whole = [(run, row) for run, row in rows if row["protocol"] != BY_POSITION]
    samples = _Samples(experiment)
    for run, row in whole or rows:
        samples.add(_measurement(row), run, run.label, row["length"], (row["loss"], row["count"]))
    return samples.panels()


def task_panels(experiment: Experiment) -> list[Panel]:
    """Accuracy against evaluation length, a panel for each task and training length."""
    samples = _Samples(experiment)
    for run, row in _rows(experiment):
        if row["protocol"] == TASKS and row.get("accuracy") is not None:
            sample = (row["accuracy"], row["count"])
            samples.add(_measurement(row), run, run.label, row["length"], sample)
    return [_told_apart(panel) for panel in samples.panels()]


def position_panels(experiment: Experiment) -> list[Panel]:
    """Loss against position in bins, at the longest window measured for each training length."""
    samples, longest = _Samples(experiment), _longest_windows(experiment)
    for run, row, name in _rows_by_position(experiment):
        measurement = _measurement(row)
        if row["length"] == longest[measurement, run.train_length]:
            sums, counts = run.positions[f"{name}.sum"], run.positions[f"{name}.count"]
            for at, loss, count in binned(sums, counts, run.train_length):
                samples.add(measurement, run, run.label, at, (loss, count))
    return [
        replace(panel, window=longest[panel.measurement, panel.train_length])
        for panel in samples.panels()
    ]


def _told_apart(panel: Panel) -> Panel:
    """The panel with labels of what differs in it: the settings of its task are those of all."""
    words = [series.label.split(" ") for series in panel.series]
    shared = set.intersection(*(set(settings) for _, *settings in words))
    labels = [
        " ".join([name, *(word for word in settings if word not in shared)])
        for name, *settings in words
    ]
    series = zip(panel.series, labels, strict=True)
    return replace(panel, series=tuple(replace(one, label=label) for one, label in series))


class _Samples:
    """Values of single seeds, gathered by what they may be averaged with."""

    def __init__(self, experiment: Experiment) -> None:
        self._own = {run.config["frozen"]["fingerprint"] for run in experiment.runs}
        self._families: dict[str, str] = {}
        self._of: defaultdict[tuple[Measurement, int], dict[str, dict[float, dict[int, Sample]]]]
        self._of = defaultdict(dict)

    def add(
        self, measurement: Measurement, run: Run, label: str, at: float, sample: Sample
    ) -> None:
        self._families[label] = run.encoding
        curve = self._of[measurement, run.train_length].setdefault(label, {})
        curve.setdefault(at, {})[run.seed] = sample

    def panels(self) -> list[Panel]:
        """Panels of the data that the runs were trained on first."""
        return [
            Panel(measurement, length, tuple(map(self._series, curves, curves.values())))
            for (measurement, length), curves in sorted(
                self._of.items(), key=lambda item: self._order(*item[0])
            )
        ]

    def _series(self, label: str, curve: dict[float, dict[int, Sample]]) -> Series:
        points = tuple(_point(at, curve[at]) for at in sorted(curve))
        return Series(label, self._families[label], points)

    def _order(self, measurement: Measurement, length: int) -> tuple[Any, ...]:
        return (measurement.data not in self._own, str(measurement), measurement.data, length)


def _point(at: float, samples: dict[int, Sample]) -> Point:
    seeds = tuple(sorted(samples))
    values = tuple(samples[seed][0] for seed in seeds)
    return Point(at, values, seeds, max(count for _, count in samples.values()))


def _measurement(row: dict[str, Any]) -> Measurement:
    names = ("data", "data_name", "split", "protocol", "stride", "swap")
    return Measurement(**{name: row[name] for name in names})


def _rows(experiment: Experiment) -> Iterator[tuple[Run, dict[str, Any]]]:
    return ((run, row) for run in experiment.measured for row in run.rows)


def _rows_by_position(experiment: Experiment) -> Iterator[tuple[Run, dict[str, Any], str]]:
    """Every row whose losses by position are there, with what they are called."""
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
