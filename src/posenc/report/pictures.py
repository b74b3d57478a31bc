"""Every figure of a report, by the section of the page in which it stands."""

from collections.abc import Sequence

from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.heat_figures import draw_heat
from posenc.report.heat_interactive import interactive_heat
from posenc.report.kinds.accuracy import accuracy
from posenc.report.kinds.bases import bases
from posenc.report.kinds.by_length import by_length
from posenc.report.kinds.by_position import by_position
from posenc.report.kinds.cost import cost
from posenc.report.kinds.heat import HeatMap, heat_map
from posenc.report.kinds.relative import relative
from posenc.report.picture import Picture, of_chart
from posenc.report.style import styles


def pictures(
    experiment: Experiment,
    lengths: Sequence[Panel],
    tasks: Sequence[Panel],
    positions: Sequence[Panel],
) -> list[Picture]:
    """The figures that the panels of an experiment allow, in the order of the page."""
    looks = styles([*lengths, *tasks, *positions])
    charts = [
        ("tasks", accuracy(tasks, looks, experiment)),
        ("results", by_length(lengths, looks) if lengths else None),
        ("results", relative(lengths, looks, experiment)),
        ("bases", bases(lengths, experiment)),
        ("positions", by_position(positions, looks) if positions else None),
        ("cost", cost(lengths, looks, experiment)),
    ]
    made = [of_chart(section, chart) for section, chart in charts if chart]
    heat = heat_map(positions)
    return [*made, *([_of_heat(heat)] if heat else [])]


def _of_heat(heat: HeatMap) -> Picture:
    return Picture(
        "positions",
        heat.file,
        heat.title,
        f"{heat.subtitle}. {heat.reading}",
        heat.csv,
        lambda: draw_heat(heat),
        lambda: interactive_heat(heat),
    )
