"""Training speed against perplexity beyond the training length."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from posenc.report.chart import Chart, Line
from posenc.report.confidence import Band, band
from posenc.report.curve_set import CurveSet
from posenc.report.curves import describe_lengths
from posenc.report.experiment import Experiment
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    plot_point,
    plotted_points_csv,
    select_first_measurement,
)
from posenc.report.quantities import QUANTITIES

CAPTION = (
    "Encodings further right train faster; those further down have lower perplexity. A run's speed"
    " is the median over its training steps on its machine, which may have run other jobs"
    " concurrently. Bars show the bands over seeds."
)


def cost_against_quality(
    curve_sets: Sequence[CurveSet], styles: Styles, experiment: Experiment
) -> Chart | None:
    """Return a point for each timed encoding, evaluated at 2L or else at the longest length."""
    candidates = [(c, _lines(c, styles, experiment)) for c in select_first_measurement(curve_sets)]
    shown_sets = [curves for curves, lines in candidates if lines]
    lines = [lines for _, lines in candidates if lines]
    return curve_chart(
        shown_sets,
        lines,
        titles=[_title(curves) for curves in shown_sets],
        vertical_lines=[()] * len(shown_sets),
        file_stem="cost_against_quality",
        title="Cost against quality",
        x_title="Training speed (tokens per second)",
        y_title="Perplexity per token",
        caption=CAPTION,
        csv=plotted_points_csv(shown_sets, lines, "encoding", "tokens_per_second", "perplexity"),
        log_y=True,
    )


def _compared_length(curves: CurveSet) -> int:
    doubled = 2 * curves.train_length
    return doubled if doubled in curves.x_values else int(curves.x_values[-1])


def _title(curves: CurveSet) -> str:
    length = _compared_length(curves)
    (relative,) = describe_lengths([length], curves.train_length)
    return f"trained at L = {curves.train_length}, evaluated at {length} tokens ({relative})"


def _lines(curves: CurveSet, styles: Styles, experiment: Experiment) -> list[Line]:
    """Return a line with a single point for each encoding."""
    lines = []
    for curve in curves.curves:
        point = curve.point_at(_compared_length(curves))
        speed = _mean_speed(experiment, curve.label, curves.train_length)
        if point and speed:
            dot = replace(plot_point(point).transformed(exp), x=speed.mean, x_band=speed)
            lines.append(Line(curve.label, styles[curve.label], (dot,)))
    return lines


def _mean_speed(experiment: Experiment, label: str, train_length: int) -> Band | None:
    """Return the mean training speed over seeds in tokens/s, computed on logarithms."""
    speeds = [
        QUANTITIES["training_tokens_per_second"].read(run.timing)
        for run in experiment.evaluated
        if run.timing and run.label == label and run.train_length == train_length
    ]
    if not speeds:
        return None
    logs = band(speeds)
    return Band(exp(logs.mean), exp(logs.low), exp(logs.high), logs.seeds)
