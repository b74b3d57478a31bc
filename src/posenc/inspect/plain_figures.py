"""Line charts without uncertainty bands, and heat maps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from posenc.report.chart import Chart, Line, PlotPoint, Subplot
from posenc.report.confidence import zero_width_band
from posenc.report.encoding_styles import Style
from posenc.report.heat_map import HeatMap, HeatPanel, heat_figure
from posenc.report.line_plot import line_figure
from posenc.report.table import csv_text
from posenc.report.vega_figure import Figure

DASHED = (4, 2)
MAX_LINES = 6  # per subplot


def plain_line(
    label: str, points: Iterable[tuple[float, float]], style: Style, *, dashed: bool = False
) -> Line:
    """Return a line through points (x, y); `dashed` replaces the dash pattern of `style`."""
    style = replace(style, dash=DASHED) if dashed else style
    return Line(
        label, style, tuple(PlotPoint(float(x), zero_width_band(float(y))) for x, y in points)
    )


def plain_figure(
    section: str,
    file_stem: str,
    title: str,
    caption: str,
    axes: tuple[str, str],
    subplots: Sequence[Subplot],
    *,
    log_y: bool = False,
) -> Figure | None:
    """Return a line chart, or None if there are no subplots.

    `axes` are the titles of the x axis and the y axis. The x axis is logarithmic. With `log_y`, the
    y axis is also logarithmic if its values span a wide range (see `Chart`).
    """
    if not subplots:
        return None
    points = [
        [subplot.title, line.label, f"{point.x:.6g}", f"{point.y.mean:.8g}"]
        for subplot in subplots
        for line in subplot.lines
        for point in line.points
    ]
    csv = csv_text([["panel", "line", *axes], *points])
    return line_figure(
        section, Chart(file_stem, title, *axes, tuple(subplots), caption, csv, log_y=log_y)
    )


def heat_map_figure(
    section: str,
    file_stem: str,
    title: str,
    caption: str,
    axes: tuple[str, str, str],
    panels: Sequence[HeatPanel],
) -> Figure | None:
    """Return a figure of heat maps, or None if there are no panels.

    `axes` are the titles of the rows, columns and values.
    """
    if not panels:
        return None
    values = [
        [panel.title, row, column, f"{panel.values[i, j]:.6g}"]
        for panel in panels
        for i, row in enumerate(panel.rows)
        for j, column in enumerate(panel.columns)
    ]
    y_title, x_title, value_title = axes
    csv = csv_text([["panel", *axes], *values])
    heat_map = HeatMap(
        file_stem, title, x_title, y_title, value_title, panels, caption, csv, diverging=True
    )
    return heat_figure(section, heat_map)
