"""Cost against quality: how fast a model trains, and how well it reads past its length."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from posenc.claims.quantities import QUANTITIES
from posenc.report.bands import Band, band
from posenc.report.charts import Chart, Frame, Line
from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.formats import dots_csv
from posenc.report.kinds.frames import Looks, dot_of, first_alike, shared_text
from posenc.report.tables import spans

SPEED = QUANTITIES["training_tokens_per_second"]
READING = (
    "Further right trains faster, further down reads better. A run's speed is the median over its"
    " training steps, on the machine that it ran on and beside whatever else ran there; bars are"
    " bands over seeds."
)


def cost(panels: Sequence[Panel], looks: Looks, experiment: Experiment) -> Chart | None:
    """A dot for each encoding that was timed, at 2L or else the longest length."""
    found = [(panel, _frame(panel, looks, experiment)) for panel in first_alike(panels)]
    kept = [(panel, frame) for panel, frame in found if frame.lines]
    if not kept:
        return None
    shown, frames = [panel for panel, _ in kept], tuple(frame for _, frame in kept)
    return Chart(
        file="cost_against_quality",
        title="Cost against quality",
        x_name="Training speed (tokens per second)",
        y_name="Perplexity per token",
        frames=frames,
        ratio=True,
        reading=READING,
        csv=dots_csv(shown, frames, "encoding", "tokens_per_second", "perplexity"),
        shared=shared_text(shown),
    )


def _frame(panel: Panel, looks: Looks, experiment: Experiment) -> Frame:
    length = panel.train_length
    at = 2 * length if 2 * length in panel.places else int(panel.places[-1])
    lines = []
    for series in panel.series:
        point, speed = series.at(at), _speed(experiment, series.label, length)
        if point and speed:
            dot = replace(dot_of(point).shown(exp), at=speed.mean, across=speed)
            lines.append(Line(series.label, looks[series.label], (dot,)))
    (span,) = spans((at,), length)
    heading = f"trained at L = {length}, read at {at} tokens ({span})"
    return Frame(heading, tuple(lines), heading)


def _speed(experiment: Experiment, label: str, train_length: int) -> Band | None:
    """Tokens per second over the seeds of an encoding; its band is taken over logarithms."""
    speeds = [
        SPEED.read(run.timing)
        for run in experiment.measured
        if run.timing and run.label == label and run.train_length == train_length
    ]
    if not speeds:
        return None
    found = band(speeds)
    return Band(exp(found.mean), exp(found.low), exp(found.high), found.seeds)
