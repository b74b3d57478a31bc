"""Accuracy of tasks by evaluation length."""

from collections.abc import Sequence
from dataclasses import replace

from posenc.report.bands import Band
from posenc.report.charts import Chart, Dot, Line
from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.formats import dots_csv
from posenc.report.kinds.frames import Looks, frame_of, lines_of, published_line, same
from posenc.report.published import overlays

READING = (
    "Higher is better: the share of answers that the model ranks first, each given the answers"
    " before it. Right of the dashed line sequences are longer than any that it was trained on."
)


def accuracy(panels: Sequence[Panel], looks: Looks, experiment: Experiment) -> Chart | None:
    """A frame for each task and training length, published accuracies over it."""
    if not panels:
        return None
    frames = []
    for panel in panels:
        published = overlays(panel, experiment, ("accuracy",)).items()
        over = [published_line(label, curve, looks, same) for label, curve in published]
        lines = [_within(line) for line in lines_of(panel, looks, same)]
        frame = frame_of(panel, panels, [*lines, *over])
        title = f"{panel.measurement.data_name}, trained at L = {panel.train_length}"
        frames.append(replace(frame, heading=title, group="accuracy"))
    return Chart(
        file="accuracy_by_length",
        title="Accuracy by evaluation length",
        x_name="Evaluation length (tokens)",
        y_name="Accuracy",
        frames=tuple(frames),
        ratio=False,
        reading=READING,
        csv=dots_csv(panels, frames, "encoding", "length", "accuracy"),
        bounds=(0.0, 1.0),
    )


def _within(line: Line) -> Line:
    """The line with its bands cut at 0 and 1, past which there is no accuracy."""
    dots = []
    for dot in line.dots:
        ends = (max(0.0, dot.band.low), min(1.0, dot.band.high))
        dots.append(Dot(dot.at, Band(dot.band.mean, *ends, dot.band.seeds), note=dot.note))
    return replace(line, dots=tuple(dots))
