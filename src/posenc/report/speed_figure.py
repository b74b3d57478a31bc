"""Training speed against perplexity beyond the training length."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from posenc.report.chart import Chart, Line, Subplot
from posenc.report.confidence import Band, band
from posenc.report.curve_data import CurveSet, describe_lengths
from posenc.report.experiment import Experiment
from posenc.report.plotted_curves import (
    Styles,
    dot,
    dots_csv,
    first_measurement,
    shared_measurement,
)
from posenc.report.quantities import QUANTITIES

SPEED = QUANTITIES["training_tokens_per_second"]
READING = (
    "Further right trains faster, further down is better. A run's speed is the median over its"
    " training steps on the machine that it ran on, with whatever else ran there; bars are bands"
    " over seeds."
)


def cost_against_quality(
    curve_sets: Sequence[CurveSet], styles: Styles, experiment: Experiment
) -> Chart | None:
    """Return a dot for each encoding with timings, at 2L or else the longest length."""
    subplots = [(c, _subplot(c, styles, experiment)) for c in first_measurement(curve_sets)]
    subplots = [(curves, subplot) for curves, subplot in subplots if subplot.lines]
    if not subplots:
        return None
    shown, drawn = zip(*subplots, strict=True)
    return Chart(
        file="cost_against_quality",
        title="Cost against quality",
        x_title="Training speed (tokens per second)",
        y_title="Perplexity per token",
        subplots=drawn,
        reading=READING,
        csv=dots_csv(shown, drawn, "encoding", "tokens_per_second", "perplexity"),
        ratio=True,
        shared=shared_measurement(shown),
    )


def _subplot(curves: CurveSet, styles: Styles, experiment: Experiment) -> Subplot:
    train_length = curves.train_length
    length = 2 * train_length if 2 * train_length in curves.places else int(curves.places[-1])
    lines = []
    for curve in curves.curves:
        point, speed = curve.at(length), _speed(experiment, curve.label, train_length)
        if point and speed:
            mean = replace(dot(point).transformed(exp), x=speed.mean, x_band=speed)
            lines.append(Line(curve.label, styles[curve.label], (mean,)))
    (relative,) = describe_lengths((length,), train_length)
    title = f"trained at L = {train_length}, evaluated at {length} tokens ({relative})"
    return Subplot(title, tuple(lines), title)


def _speed(experiment: Experiment, label: str, train_length: int) -> Band | None:
    """Return tokens per second over the seeds of an encoding; the band is over logarithms."""
    speeds = [
        SPEED.read(run.timing)
        for run in experiment.evaluated
        if run.timing and run.label == label and run.train_length == train_length
    ]
    if not speeds:
        return None
    logs = band(speeds)
    return Band(exp(logs.mean), exp(logs.low), exp(logs.high), logs.seeds)
