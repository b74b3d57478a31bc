"""Perplexity beyond the training length L relative to that at L, by training tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from posenc.report.chart import Chart, Line
from posenc.report.curve_set import CurveSet
from posenc.report.curves import RunPoint, curve_sets, evaluation_key
from posenc.report.experiment import Experiment
from posenc.report.plotted_curves import Styles, curve_chart, curve_lines
from posenc.report.scale import exp
from posenc.report.table import records_csv

PROTOCOL = "nonoverlapping"
CAPTION = (
    "Perplexity at the evaluation length divided by the perplexity at the training length L, for"
    " each seed, after different numbers of training tokens in the same runs. Above 1, the model is"
    " worse beyond L. All checkpoints of a run come from one learning-rate schedule."
)


def relative_perplexity_by_tokens(experiment: Experiment, styles: Styles) -> Chart | None:
    """Return a chart with a subplot for each measurement and evaluation length beyond L.

    Returns None if no run was evaluated before the end of its training.
    """
    if all(row.get("at_tokens") is None for run in experiment.runs for row in run.rows):
        return None
    sets = _ratio_curves(experiment)
    lines = [curve_lines(curves, styles, exp) for curves in sets]
    return curve_chart(
        sets,
        lines,
        vertical_lines=[()] * len(sets),
        file_stem="relative_perplexity_by_tokens",
        title="Perplexity relative to its value at the training length, by training tokens",
        x_title="Training tokens",
        y_title="Perplexity relative to L",
        caption=CAPTION,
        csv=_csv(sets, lines),
        log_y=True,
    )


def _ratio_curves(experiment: Experiment) -> list[CurveSet]:
    """Return the log of perplexity relative to that at L; `window` is the evaluation length."""
    run_points = sorted(_ratios(experiment), key=itemgetter(0))
    sets = [
        replace(curves, window=length)
        for length, group in groupby(run_points, key=itemgetter(0))
        for curves in curve_sets(experiment, [point for _, point in group])
    ]
    return sorted(sets, key=lambda curves: (str(curves.measurement), curves.train_length))


def _ratios(experiment: Experiment) -> Iterator[tuple[int, RunPoint]]:
    """Yield the evaluation length and the log of perplexity relative to L for rows beyond L."""
    for run in experiment.evaluated:
        rows = [row for row in run.rows if row["protocol"] == PROTOCOL]
        at_train_length = {
            (evaluation_key(row), row.get("at_tokens")): row["loss"]
            for row in rows
            if row["length"] == run.train_length
        }
        for row in rows:
            reference = at_train_length.get((evaluation_key(row), row.get("at_tokens")))
            if row["length"] > run.train_length and reference is not None:
                ratio, tokens = row["loss"] - reference, run.training_tokens(row)
                point = RunPoint(run, evaluation_key(row), tokens, ratio, row["count"])
                yield row["length"], point


def _csv(sets: Sequence[CurveSet], lines: Sequence[Sequence[Line]]) -> str:
    return records_csv(
        [
            {
                **curves.key,
                "length": curves.window,
                "encoding": line.label,
                "tokens": f"{point.x:.0f}",
                "relative_perplexity": f"{point.y.mean:.6g}",
                "low": f"{point.y.low:.6g}",
                "high": f"{point.y.high:.6g}",
                "band": point.y.description or None,
                "seeds": point.y.seeds,
            }
            for curves, subplot_lines in zip(sets, lines, strict=True)
            for line in subplot_lines
            for point in line.points
        ]
    )
