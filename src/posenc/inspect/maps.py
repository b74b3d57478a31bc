"""Maps: values over a plane as colours, each panel on its own scale."""

from collections.abc import Sequence

from posenc.report.heat_map import HeatMap, HeatPanel, heat_figure
from posenc.report.table import csv_text
from posenc.report.vega_figure import Figure


def map_figure(
    section: str,
    file: str,
    title: str,
    reading: str,
    names: tuple[str, str, str],
    panels: Sequence[HeatPanel],
) -> Figure:
    """The figure, with every value in its csv; `names` are those of rows, columns and values."""
    lines: list[list[object]] = [["panel", *names]]
    for panel in panels:
        for i, row in enumerate(panel.rows):
            for j, column in enumerate(panel.columns):
                lines.append([panel.title, row, column, f"{panel.values[i, j]:.6g}"])
    y_title, x_title, value_title = names
    axes = (x_title, y_title, value_title)
    heat_map = HeatMap(file, title, *axes, panels, reading, csv_text(lines), diverging=True)
    return heat_figure(section, heat_map)
