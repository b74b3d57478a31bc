"""Every figure of a report, by the section of the page in which it stands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from matplotlib.figure import Figure

from posenc.report.charts import Chart
from posenc.report.collect import Experiment
from posenc.report.curves import Panel
from posenc.report.figures import draw
from posenc.report.heat_figures import draw_heat
from posenc.report.heat_interactive import interactive_heat
from posenc.report.interactive import interactive
from posenc.report.kinds.accuracy import accuracy
from posenc.report.kinds.bases import bases
from posenc.report.kinds.by_length import by_length
from posenc.report.kinds.by_position import by_position
from posenc.report.kinds.cost import cost
from posenc.report.kinds.heat import HeatMap, heat_map
from posenc.report.kinds.relative import relative
from posenc.report.style import styles


@dataclass(frozen=True)
class Picture:
    """One figure: drawn for paper, plotted on the page, and its points; `file` is its stem."""

    section: str
    file: str
    title: str
    caption: str
    csv: str
    draw: Callable[[], Figure]
    plot: Callable[[], go.Figure]


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
    made = [_of_chart(section, chart) for section, chart in charts if chart]
    heat = heat_map(positions)
    return [*made, *([_of_heat(heat)] if heat else [])]


def _of_chart(section: str, chart: Chart) -> Picture:
    return Picture(
        section,
        chart.file,
        chart.title,
        f"{chart.subtitle}. {chart.reading}",
        chart.csv,
        lambda: draw(chart),
        lambda: interactive(chart),
    )


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
