"""Collects the curves of an experiment from the evaluation rows and losses by position of its runs.

Each evaluation row of a run, or bin of positions, becomes a `RunPoint`. Those of one evaluation key
and training length form a `CurveSet`, in which a `Point` has the values of all seeds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import isclose
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from posenc.config.paths import NO_SWAP
from posenc.data.build_data import saved_task
from posenc.evaluation.protocols import NONOVERLAPPING_PROTOCOLS
from posenc.report.curve_set import ACCURACY, Curve, CurveSet, EvaluationKey, Point
from posenc.report.experiment import Experiment, Run
from posenc.report.published_curves import PublishedCurve
from posenc.report.swap_series import merge_swaps
from posenc.runs.evaluation_rows import budget_key, measurement_key
from posenc.runs.loss_arrays import (
    BY_POSITION,
    BlockSums,
    bin_positions,
    end_of_window_loss,
    position_array_name,
    sums_and_counts,
)
from posenc.runs.row_types import Row

TASKS = "tasks"
TASK_DATA_PREFIX = "task_"
"""Data names with this prefix are tasks, for which only accuracy is meaningful."""
MIN_POSITION_WINDOWS = 50
MIN_BIN_TOKENS = 2_000
"""The minimum number of tokens per run in a bin of positions."""
RunLosses = tuple[Run, tuple[np.ndarray, np.ndarray]]
"""A run, with the sums and counts of its losses by position."""


class RunPoint(NamedTuple):
    """A run's value at `x`: an evaluation length, a position or a number of training tokens.

    The value is a loss (nats per token), an accuracy, or the log of a perplexity ratio; `tokens` is
    the number of scored tokens. `blocks` has the summed loss of each block of the text, and
    `end_loss` is the mean loss at the end of the windows. Either is None if it was not saved.
    """

    run: Run
    evaluation_key: EvaluationKey
    x: float
    value: float
    tokens: int
    blocks: BlockSums | None = None
    end_loss: float | None = None


def loss_curves(experiment: Experiment) -> list[CurveSet]:
    """Return loss by evaluation length with swaps merged.

    Uses by_position rows only if there are no other rows. Tasks are excluded because their loss
    mostly measures how confident a model is in wrong answers.
    """
    run_points = [
        point
        for point in _run_points(experiment, "loss")
        if point.evaluation_key.protocol != TASKS
        and not point.evaluation_key.data_name.startswith(TASK_DATA_PREFIX)
    ]
    by_length = [point for point in run_points if point.evaluation_key.protocol != BY_POSITION]
    return merge_swaps(curve_sets(experiment, by_length or run_points))


def accuracy_curves(experiment: Experiment) -> list[CurveSet]:
    """Return accuracy by evaluation length for each task and training length, with swaps merged."""
    run_points = _run_points(experiment, "accuracy")
    tasks = (point for point in run_points if point.evaluation_key.protocol == TASKS)
    sets = map(_without_shared_settings, merge_swaps(curve_sets(experiment, tasks)))
    return [
        replace(curves, quantity=ACCURACY, chance=_chance(experiment, curves.evaluation_key.data))
        for curves in sets
    ]


def position_curves(experiment: Experiment) -> list[CurveSet]:
    """Return loss by binned position for each evaluation key and training length.

    Swaps are merged. Considers only the window lengths at which the largest number of runs were
    evaluated, and uses the longest one with at least MIN_POSITION_WINDOWS windows or, if there is
    none, the one with the most windows. A mean over a few windows mostly depends on their text.
    """
    runs_by_length: dict[tuple[EvaluationKey, int], dict[int, list[RunLosses]]] = {}
    for run, row in experiment.final_rows:
        if row["protocol"] == BY_POSITION:
            arrays = sums_and_counts(row, run.positions, position_array_name(row))
            if arrays is not None:  # None if missing or from a different budget
                by_length = runs_by_length.setdefault((evaluation_key(row), run.train_length), {})
                by_length.setdefault(row["length"], []).append((run, arrays))
    windows = {key: _choose_window(by_length) for key, by_length in runs_by_length.items()}
    run_points = (
        RunPoint(run, key[0], *position_bin)
        for key, (length, _) in windows.items()
        for run, arrays in runs_by_length[key][length]
        for position_bin in bin_positions(*arrays, run.train_length, MIN_BIN_TOKENS)
    )
    sets = curve_sets(experiment, run_points)
    chosen = [windows[curves.evaluation_key, curves.train_length] for curves in sets]
    return merge_swaps(
        [
            replace(curves, window=length, num_windows=count)
            for curves, (length, count) in zip(sets, chosen, strict=True)
        ]
    )


def _choose_window(runs_by_length: dict[int, list[RunLosses]]) -> tuple[int, int]:
    """Return the window length to plot, and the smallest number of such windows in any run.

    Considers only the lengths at which the largest number of runs were evaluated.
    """
    most_runs = max(map(len, runs_by_length.values()))
    counts = {
        length: min(int(counts.max()) for _, (_, counts) in runs)
        for length, runs in runs_by_length.items()
        if len(runs) == most_runs
    }
    enough = [length for length, count in counts.items() if count >= MIN_POSITION_WINDOWS]
    length = max(enough) if enough else max(counts, key=lambda n: (counts[n], n))
    return length, counts[length]


def evaluation_key(row: Row) -> EvaluationKey:
    names = ("data", "data_name", "split", "protocol", "stride", "swap")
    return EvaluationKey(**{name: row[name] for name in names})


def _run_points(experiment: Experiment, field: str) -> Iterator[RunPoint]:
    """Yield a point for each comparable row of the final weights that has a value in `field`.

    If the baseline of the swaps was evaluated with a different budget from the comparable rows, its
    rows are also yielded as the swap `none`.
    """
    rows = [(run, row, evaluation_key(row)) for run, row in experiment.final_rows]
    swapped = [run for run in experiment.runs if any(row["swap"] for row in run.comparable_rows)]
    unswapped = [(run, row) for run in swapped for row in _unswapped_rows(run)]
    if any(row not in run.comparable_rows for run, row in unswapped):
        rows += [(run, row, replace(evaluation_key(row), swap=NO_SWAP)) for run, row in unswapped]
    for run, row, key in rows:
        if row.get(field) is not None:
            point = RunPoint(run, key, row["length"], row[field], row["count"])
            if field == "loss":
                end_loss = end_of_window_loss(row, run.positions)
                point = point._replace(blocks=run.blocks(row), end_loss=end_loss)
            yield point


def _unswapped_rows(run: Run) -> list[Row]:
    """Return the final weights' rows without a swap, preferring those with the swaps' budget."""
    budgets = {
        measurement_key({**row, "swap": None}): budget_key(row)
        for row in run.comparable_rows
        if row["swap"] is not None
    }
    same_budget = {
        measurement_key(row): row
        for row in run.saved_rows
        if budget_key(row) == budgets.get(measurement_key(row), ())
    }
    rows = (r for r in run.comparable_rows if r["swap"] is None and r.get("at_tokens") is None)
    return [same_budget.get(measurement_key(row), row) for row in rows]


def curve_sets(experiment: Experiment, run_points: Iterable[RunPoint]) -> list[CurveSet]:
    """Return all curve sets, the main evaluation first.

    The main evaluation is on the training corpus and the configured evaluation split, without a
    swap, and in non-overlapping windows if there are any.
    """
    train_data = {run.config["planned"]["fingerprint"] for run in experiment.runs}
    splits = {run.config["evaluation"]["split"] for run in experiment.runs}
    encodings = {run.label: run.encoding for run in experiment.runs}
    sets: dict[tuple[EvaluationKey, int], dict[str, dict[float, dict[int, RunPoint]]]] = {}
    scored_tokens: dict[tuple[EvaluationKey, int], set[int]] = {}
    for point in run_points:
        run, key = point.run, (point.evaluation_key, point.run.train_length)
        scored_tokens.setdefault(key, set()).add(point.tokens)
        curves = sets.setdefault(key, {})
        curves.setdefault(run.label, {}).setdefault(point.x, {})[run.seed] = point

    def sort_key(key: tuple[EvaluationKey, int]) -> tuple[Any, ...]:
        e, train_length = key
        other_text = (e.data not in train_data, e.split not in splits)
        not_main = (*other_text, e.swap is not None, e.protocol != "nonoverlapping")
        names = (e.data_name, e.split, e.protocol, e.stride or 0, e.swap or "", e.data)
        return (*not_main, *names, train_length)

    return [
        CurveSet(
            *key,
            tuple(
                Curve(label, encodings[label], tuple(_point(x, points[x]) for x in sorted(points)))
                for label, points in sets[key].items()
            ),
            _published(experiment, *key, sets[key].keys()),
            ngrams=_ngrams(experiment, *key, scored_tokens[key]),
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
        tokens_differ=len({point.tokens for point in in_order}) > 1,
    )


def _published(
    experiment: Experiment, evaluation_key: EvaluationKey, train_length: int, labels: Iterable[str]
) -> tuple[tuple[str, PublishedCurve], ...]:
    """Return the published curves that match an evaluation key, each with the label of its runs."""
    keys = {**vars(evaluation_key), "corpus": evaluation_key.data_name}
    return tuple(
        (run.label, curve)
        for curve in experiment.published
        if curve.train_length == train_length
        and all(keys[key] == value for key, value in curve.row_keys.items())
        for run in experiment.runs
        if run.label in labels and run.matches(curve.selector)
    )


def _ngrams(
    experiment: Experiment,
    evaluation_key: EvaluationKey,
    train_length: int,
    scored_tokens: set[int],
) -> dict[int, float]:
    """Return the mean loss over seeds of n-gram models by order.

    Empty if the protocol is not in NONOVERLAPPING_PROTOCOLS, or if the runs scored a different
    number of tokens than the n-gram models. Orders for which runs with the same seed have different
    losses are left out, for example because the runs were trained on different numbers of tokens.
    """
    if evaluation_key.protocol not in NONOVERLAPPING_PROTOCOLS:
        return {}
    losses: dict[int, dict[int, list[float]]] = {}
    for run in experiment.runs:
        for row in run.ngrams if run.train_length == train_length else ():
            same_split = (row["data"], row["split"]) == (evaluation_key.data, evaluation_key.split)
            if same_split and scored_tokens == {row["count"]}:
                by_seed = losses.setdefault(row["order"], {})
                by_seed.setdefault(run.seed, []).append(row["loss"])
    return {
        order: fmean(values[-1] for values in by_seed.values())
        for order, by_seed in sorted(losses.items())
        if all(isclose(min(values), max(values)) for values in by_seed.values())
    }


def _chance(experiment: Experiment, data: str) -> float | None:
    """Return the chance accuracy on a task that runs were trained on; None if unknown."""
    configs = (run.config for run in experiment.runs)
    config = next((c for c in configs if c["planned"]["fingerprint"] == data), None)
    task = None if config is None else saved_task(config)
    return None if task is None else task.chance


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
