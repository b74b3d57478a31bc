"""Figures of values that follow from formulas: lines without bands, and heat maps."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from posenc.report.chart import Chart, Line, PlotPoint, Subplot
from posenc.report.confidence import exact
from posenc.report.encoding_styles import COLORS, style_at
from posenc.report.heat_map import HeatMap, HeatPanel, heat_figure
from posenc.report.line_plot import line_figure
from posenc.report.table import csv_text
from posenc.report.vega_figure import Figure

DASHED = (4, 2)
MAX_LINES = 6  # of a subplot


def formula_line(
    label: str, points: Iterable[tuple[float, float]], index: int, *, dashed: bool = False
) -> Line:
    """Return a line through points (x, y); `index` chooses its color and marker."""
    style = replace(style_at(index % len(COLORS)), dash=DASHED if dashed else ())
    return Line(label, style, tuple(PlotPoint(float(x), exact(float(y))) for x, y in points))


def formula_figure(
    section: str,
    file: str,
    title: str,
    reading: str,
    axes: tuple[str, str],
    subplots: Sequence[Subplot],
    *,
    ratio: bool = False,
) -> Figure:
    """Return a figure of lines; `axes` are the titles of x, which is logarithmic, and y."""
    points = [
        [subplot.title, line.label, f"{point.x:.6g}", f"{point.y.mean:.8g}"]
        for subplot in subplots
        for line in subplot.lines
        for point in line.points
    ]
    csv = csv_text([["panel", "line", *axes], *points])
    return line_figure(
        section, Chart(file, title, *axes, tuple(subplots), reading, csv, log_y=ratio)
    )


def map_figure(
    section: str,
    file: str,
    title: str,
    reading: str,
    names: tuple[str, str, str],
    panels: Sequence[HeatPanel],
) -> Figure:
    """Return a figure of heat maps; `names` are those of rows, columns and values."""
    values = [
        [panel.title, row, column, f"{panel.values[i, j]:.6g}"]
        for panel in panels
        for i, row in enumerate(panel.rows)
        for j, column in enumerate(panel.columns)
    ]
    y_title, x_title, value_title = names
    csv = csv_text([["panel", *names], *values])
    heat_map = HeatMap(
        file, title, x_title, y_title, value_title, panels, reading, csv, diverging=True
    )
    return heat_figure(section, heat_map)
