"""Perplexity by evaluation length: the extrapolation curve."""

from collections.abc import Sequence
from math import exp

from posenc.report.charts import Chart
from posenc.report.curves import Panel
from posenc.report.formats import points_csv
from posenc.report.kinds.frames import Looks, frame_of, lines_of, shared_text

READING = (
    "Lower is better. Right of the dashed line windows are longer than any that the model was"
    " trained on: a flat or falling line extrapolates, a rising one does not."
)


def by_length(panels: Sequence[Panel], looks: Looks) -> Chart:
    """A frame for each measurement and training length; intervals are taken over losses."""
    return Chart(
        file="perplexity_by_length",
        title="Perplexity by evaluation length",
        x_name="Evaluation length (tokens)",
        y_name="Perplexity per token",
        frames=tuple(frame_of(p, panels, lines_of(p, looks, exp)) for p in panels),
        ratio=True,
        reading=READING,
        csv=points_csv(panels, "length"),
        shared=shared_text(panels),
    )
