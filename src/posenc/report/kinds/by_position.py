"""Loss by position in the window, as lines."""

from collections.abc import Sequence

from posenc.report.charts import Chart
from posenc.report.curves import Panel
from posenc.report.formats import points_csv
from posenc.report.kinds.frames import Looks, frame_of, lines_of, same, shared_text

READING = (
    "Lower is better. Each point averages the loss over the positions around it, at the longest"
    " windows that were measured. Right of the dashed line stand positions that the model never saw"
    " in training."
)


def by_position(panels: Sequence[Panel], looks: Looks) -> Chart:
    """A frame for each measurement and training length."""
    return Chart(
        file="loss_by_position",
        title="Loss by position in the window",
        x_name="Position in the window (tokens)",
        y_name="Loss (nats per token)",
        frames=tuple(frame_of(p, panels, lines_of(p, looks, same)) for p in panels),
        ratio=False,
        reading=READING,
        csv=points_csv(panels, "position"),
        shared=shared_text(panels),
    )
