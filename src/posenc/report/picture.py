"""A figure of a report: drawn for paper, plotted on a page, and the files it is written to."""

from collections.abc import Callable
from dataclasses import dataclass

import plotly.graph_objects as go
from matplotlib.figure import Figure

from posenc.report.charts import Chart
from posenc.report.figures import draw
from posenc.report.interactive import interactive
from posenc.runs.figure import png, svg


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

    def files(self) -> dict[str, str | bytes]:
        """What the figure is written to, by name."""
        return {
            f"{self.file}.csv": self.csv,
            f"{self.file}.png": png(self.draw),
            f"{self.file}.svg": svg(self.draw, self.title),
        }


def of_chart(section: str, chart: Chart) -> Picture:
    """A figure of lines."""
    return Picture(
        section,
        chart.file,
        chart.title,
        ". ".join(filter(None, (chart.subtitle, chart.reading))),
        chart.csv,
        lambda: draw(chart),
        lambda: interactive(chart),
    )
