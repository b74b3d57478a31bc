"""Collects the curves of an experiment from the evaluation rows and losses by position of its runs.

Each evaluation row of a run becomes a `RunPoint`. Those of the same measurement and training length
form a `CurveSet`, in which a `Point` averages over seeds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from posenc.evaluation.protocols import NONOVERLAPPING_PROTOCOLS
from posenc.report.curve_set import Curve, CurveSet, Point
from posenc.report.evaluation_key import EvaluationKey
from posenc.report.experiment import Experiment, Row, Run
from posenc.report.published_curves import PublishedCurve
from posenc.runs.block_sums import BlockSums
from posenc.runs.evaluation_rows import bin_positions, end_of_window_loss, positions_name

BY_POSITION = "by_position"
TASKS = "tasks"
TASK_DATA_PREFIX = "task_"
"""Data names with this prefix are tasks, for which only accuracy is meaningful."""


class RunPoint(NamedTuple):
    """A run's loss (nats per token) or accuracy at `x`, an evaluation length or a position.

    `blocks` are a loss's sums in each block of the text, `end_loss` the loss at the end of the
    windows; None if they were not saved.
    """

    run: Run
    measurement: EvaluationKey
    x: float
    value: float
    tokens: int
    blocks: BlockSums | None = None
    end_loss: float | None = None


def loss_curves(experiment: Experiment) -> list[CurveSet]:
    """Return loss by evaluation length, from by_position rows only if there are no other rows.

    Tasks are excluded because their loss mostly measures how confident a model is in wrong answers.
    """
    run_points = [
        point
        for point in _run_points(experiment, "loss")
        if point.measurement.protocol != TASKS
        and not point.measurement.data_name.startswith(TASK_DATA_PREFIX)
    ]
    by_length = [point for point in run_points if point.measurement.protocol != BY_POSITION]
    return _curve_sets(experiment, by_length or run_points)


def accuracy_curves(experiment: Experiment) -> list[CurveSet]:
    """Return accuracy by evaluation length, one curve set for each task and training length."""
    run_points = _run_points(experiment, "accuracy")
    tasks = (point for point in run_points if point.measurement.protocol == TASKS)
    return [_without_shared_settings(curves) for curves in _curve_sets(experiment, tasks)]


def position_curves(experiment: Experiment) -> list[CurveSet]:
    """Return loss by binned position in the longest windows evaluated for each training length."""
    windows: dict[tuple[EvaluationKey, int], dict[int, list[tuple[Run, str]]]] = {}
    for run, row in _rows(experiment):
        name = positions_name(row)
        if row["protocol"] == BY_POSITION and f"{name}.sum" in run.positions:
            lengths = windows.setdefault((_evaluation_key(row), run.train_length), {})
            lengths.setdefault(row["length"], []).append((run, name))
    run_points = (
        RunPoint(run, measurement, *bin)
        for (measurement, train_length), lengths in windows.items()
        for run, name in lengths[max(lengths)]
        for bin in bin_positions(
            run.positions[f"{name}.sum"], run.positions[f"{name}.count"], train_length
        )
    )
    return [
        replace(curves, window=max(windows[curves.measurement, curves.train_length]))
        for curves in _curve_sets(experiment, run_points)
    ]


def describe_lengths(lengths: Iterable[float], train_length: int) -> list[str]:
    """Return lengths relative to the training length L: all as kL, or all as L+k."""
    lengths = [int(length) for length in lengths]
    if all(length % train_length == 0 for length in lengths):
        return ["L" if n == train_length else f"{n // train_length}L" for n in lengths]
    return ["L" if n == train_length else f"L{n - train_length:+}" for n in lengths]


def _rows(experiment: Experiment) -> Iterator[tuple[Run, Row]]:
    return ((run, row) for run in experiment.evaluated for row in run.rows)


def _evaluation_key(row: Row) -> EvaluationKey:
    names = ("data", "data_name", "split", "protocol", "stride", "swap")
    return EvaluationKey(**{name: row[name] for name in names})


def _run_points(experiment: Experiment, quantity: str) -> Iterator[RunPoint]:
    """Yield a point for each evaluation row that has a value for `quantity`."""
    for run, row in _rows(experiment):
        if row.get(quantity) is not None:
            point = RunPoint(run, _evaluation_key(row), row["length"], row[quantity], row["count"])
            if quantity == "loss":
                end_loss = end_of_window_loss(row, run.positions)
                point = point._replace(blocks=run.blocks(row), end_loss=end_loss)
            yield point


def _curve_sets(experiment: Experiment, run_points: Iterable[RunPoint]) -> list[CurveSet]:
    """Return all curve sets; sets measured on the training corpus come first."""
    train_data = {run.config["frozen"]["fingerprint"] for run in experiment.runs}
    encodings = {run.label: run.encoding for run in experiment.runs}
    sets: dict[tuple[EvaluationKey, int], dict[str, dict[float, dict[int, RunPoint]]]] = {}
    for point in run_points:
        run = point.run
        curves = sets.setdefault((point.measurement, run.train_length), {})
        curves.setdefault(run.label, {}).setdefault(point.x, {})[run.seed] = point

    def sort_key(key: tuple[EvaluationKey, int]) -> tuple[Any, ...]:
        m, train_length = key
        names = (m.data_name, m.split, m.protocol, m.stride or 0, m.swap or "", m.data)
        return (m.data not in train_data, *names, train_length)

    return [
        CurveSet(
            *key,
            tuple(
                Curve(label, encodings[label], tuple(_point(x, points[x]) for x in sorted(points)))
                for label, points in sets[key].items()
            ),
            _published(experiment, *key, sets[key].keys()),
            ngrams=_ngrams(experiment, *key),
        )
        for key in sorted(sets, key=sort_key)
    ]


def _point(x: float, run_points: dict[int, RunPoint]) -> Point:
    seeds = tuple(sorted(run_points))
    in_order = [run_points[seed] for seed in seeds]
    return Point(
        x,
        values=tuple(point.value for point in in_order),
        seeds=seeds,
        tokens=max(point.tokens for point in in_order),
        blocks=tuple(point.blocks for point in in_order),
        end_losses=tuple(point.end_loss for point in in_order),
    )


def _published(
    experiment: Experiment, measurement: EvaluationKey, train_length: int, labels: Iterable[str]
) -> tuple[tuple[str, PublishedCurve], ...]:
    """Return the published curves that match a measurement, with the labels they belong to."""
    keys = {**vars(measurement), "corpus": measurement.data_name}
    return tuple(
        (run.label, curve)
        for curve in experiment.published
        if curve.train_length == train_length
        and all(keys[key] == value for key, value in curve.row_keys.items())
        for run in experiment.runs
        if run.label in labels and run.matches(curve.selector)
    )


def _ngrams(
    experiment: Experiment, measurement: EvaluationKey, train_length: int
) -> dict[int, float]:
    """Return the mean losses of n-gram models by order, for protocols that score every token."""
    if measurement.protocol not in NONOVERLAPPING_PROTOCOLS:
        return {}
    by_seed = {
        (row["order"], run.seed): row["loss"]
        for run in experiment.runs
        for row in run.ngrams
        if run.train_length == train_length
        and (row["data"], row["split"]) == (measurement.data, measurement.split)
    }
    orders = sorted({order for order, _ in by_seed})
    return {n: fmean(loss for (order, _), loss in by_seed.items() if order == n) for n in orders}


def _without_shared_settings(curves: CurveSet) -> CurveSet:
    """Return the curve set with the settings that all curves share removed from the labels."""
    words = {curve.label: curve.label.split(" ") for curve in curves.curves}
    shared = set.intersection(*(set(settings) for _, *settings in words.values()))
    labels = {
        label: " ".join([name, *(word for word in settings if word not in shared)])
        for label, (name, *settings) in words.items()
    }
    return replace(
        curves,
        curves=tuple(replace(curve, label=labels[curve.label]) for curve in curves.curves),
        published=tuple((labels[label], curve) for label, curve in curves.published),
    )
