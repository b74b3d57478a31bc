"""Heat maps: colored matrices of values, in one panel or several side by side.

A panel with evenly spaced rows and columns and no missing values is drawn as a single image,
without tooltips, if it has more than MAX_CELLS cells, or all panels together have more than
MAX_FIGURE_CELLS.
"""

import io
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np
from PIL import Image

from posenc.report.chart import TICK_LABEL, token_ticks
from posenc.report.vega_figure import HEIGHT, WIDTH, Figure, Panel, rounded

MAX_CELLS, MAX_FIGURE_CELLS = 1_000, 2_000
NAMED_ROW_HEIGHT = 26  # pixels
MIN_IMAGE_PIXELS = 512  # minimum length of the longer side of an image
CIVIDIS = (  # reversed, so low values are light; safe for red-green color blindness
    "#fee838",
    "#ddc858",
    "#bbad6d",
    "#9a9376",
    "#7c7b78",
    "#60646f",
    "#424e6c",
    "#18376f",
    "#00224e",
)
BLUE_RED = (  # ColorBrewer's RdBu, reversed; 0 is white
    "#053061",
    "#2065ab",
    "#4393c3",
    "#90c4dd",
    "#d1e5f0",
    "#f7f6f6",
    "#fddbc7",
    "#f3a481",
    "#d6604d",
    "#b1182b",
    "#67001f",
)


@dataclass(frozen=True)
class HeatPanel:
    """Values [rows, columns], NaN for cells without a measurement.

    `rows` are names or evenly spaced numbers. `columns` are evenly spaced numbers, unless `edges`
    has the cell edges (one more than columns) on a logarithmic axis, whose ticks are `tick_unit`
    times powers of two. The tooltips of cells also show `tooltip_values`.
    """

    title: str
    values: np.ndarray
    rows: Sequence[str] | Sequence[float]
    columns: Sequence[float]
    edges: Sequence[float] = ()
    tick_unit: int | None = None
    vertical_line: float | None = None
    tooltip_values: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class HeatMap:
    """Panels under one title.

    Colors range from 0 to the maximum of all panels. If `diverging`, the colors of each panel
    range from -m to m, where m is its largest absolute value.
    """

    file_stem: str
    title: str
    x_title: str
    y_title: str
    value_title: str
    panels: Sequence[HeatPanel]
    caption: str
    csv: str
    subtitle: str = ""
    diverging: bool = False

    def color_range(self, panel: HeatPanel) -> tuple[float, float]:
        if self.diverging:
            largest = float(np.nanmax(np.abs(panel.values))) or 1.0
            return -largest, largest
        return 0.0, max(float(np.nanmax(p.values)) for p in self.panels) or 1.0


def heat_figure(section: str, heat_map: HeatMap) -> Figure:
    """Return the figure of a heat map."""
    panels = [_panel(heat_map, i) for i in range(len(heat_map.panels))]
    labels = (heat_map.title, heat_map.subtitle, heat_map.caption, heat_map.csv)
    return Figure(section, heat_map.file_stem, *labels, panels)


def _panel(heat_map: HeatMap, index: int) -> Panel:
    panel, name = heat_map.panels[index], f"cells-{index}"
    colors = list(BLUE_RED if heat_map.diverging else CIVIDIS)
    limits = np.linspace(*heat_map.color_range(panel), len(colors))
    scale = alt.Scale(domain=limits.tolist(), range=colors, interpolate="rgb")
    legend = alt.Legend(type="gradient", orient="bottom", gradientLength=240, gradientThickness=9)
    color = alt.Color("value:Q", title=heat_map.value_title, scale=scale, legend=legend)
    cells = alt.Chart(alt.NamedData(name)).encode(*_axes(heat_map, panel))
    if _is_image(heat_map, panel):
        rows = [_extent(panel) | {"url": _png_url(panel.values, limits, colors)}]
        ends = alt.Chart(alt.Data(values=[{"value": limits[0]}, {"value": limits[-1]}]))
        layers = [cells.mark_image(aspect=False).encode(url="url:N")]
        layers += [ends.mark_point(opacity=0).encode(color=color)]  # only for the legend
    else:
        rows = list(_cell_rows(panel))
        layers = [cells.mark_rect().encode(color=color, tooltip=_tooltip(heat_map, panel))]
    if panel.vertical_line is not None:
        line = alt.Chart(alt.Data(values=[{"x": panel.vertical_line}])).encode(x="x:Q")
        layers += [line.mark_rule(color="black", strokeDash=[5, 4])]
    height = NAMED_ROW_HEIGHT * len(panel.rows) if _has_named_rows(panel) else HEIGHT
    chart = alt.layer(*layers).properties(width=WIDTH, height=height)
    return Panel(panel.title, {"": chart}, {name: rows})


def _is_image(heat_map: HeatMap, panel: HeatPanel) -> bool:
    if _has_named_rows(panel) or panel.edges or np.isnan(panel.values).any():
        return False
    total = sum(other.values.size for other in heat_map.panels)
    return panel.values.size > MAX_CELLS or total > MAX_FIGURE_CELLS


def _has_named_rows(panel: HeatPanel) -> bool:
    return isinstance(panel.rows[0], str)


def _axes(heat_map: HeatMap, panel: HeatPanel) -> list[Any]:
    """Return the channels for the position of a cell: x, x2, y and, for numeric rows, y2."""
    extent = _extent(panel)
    scale: dict[str, Any] = {"domain": [extent["x"], extent["x2"]], "nice": False}
    axis: dict[str, Any] = {"grid": False, "tickMinStep": 1}
    if panel.edges:
        scale["type"] = "log"
        ticks = token_ticks(extent["x"], extent["x2"], panel.tick_unit or 1)
        axis |= {"values": ticks, "labelExpr": TICK_LABEL, "labelOverlap": "greedy"}
    x = alt.X("x:Q", title=heat_map.x_title, scale=alt.Scale(**scale), axis=alt.Axis(**axis))
    if _has_named_rows(panel):
        return [x, alt.X2("x2:Q"), alt.Y("row:N", sort=None, title=None)]
    y_scale = alt.Scale(domain=[extent["y"], extent["y2"]], nice=False, reverse=True)
    y_axis = alt.Axis(grid=False, tickMinStep=1)
    y = alt.Y("y:Q", title=heat_map.y_title, scale=y_scale, axis=y_axis)
    return [x, alt.X2("x2:Q"), y, alt.Y2("y2:Q")]


def _extent(panel: HeatPanel) -> dict[str, float]:
    """Return the outer edges of all cells."""
    x = panel.edges or _edges(panel.columns)
    y = [0.0] if _has_named_rows(panel) else _edges(panel.rows)
    return {"x": x[0], "x2": x[-1], "y": y[0], "y2": y[-1]}


def _edges(numbers: Sequence[Any]) -> list[float]:
    """Return the edges of cells centered on evenly spaced numbers."""
    half_step = (numbers[-1] - numbers[0]) / max(1, len(numbers) - 1) / 2 or 0.5
    return [float(numbers[0]) - half_step, *(float(number) + half_step for number in numbers)]


def _cell_rows(panel: HeatPanel) -> Iterator[dict[str, Any]]:
    x_edges = panel.edges or _edges(panel.columns)
    y_edges = () if _has_named_rows(panel) else _edges(panel.rows)
    for i, j in np.argwhere(~np.isnan(panel.values)).tolist():
        row = {"row": panel.rows[i], "column": panel.columns[j]}
        row["value"] = float(panel.values[i, j])
        row |= {"x": x_edges[j], "x2": x_edges[j + 1]}
        row |= {"y": y_edges[i], "y2": y_edges[i + 1]} if y_edges else {}
        row |= {name: float(values[i, j]) for name, values in panel.tooltip_values.items()}
        yield rounded(row)


def _tooltip(heat_map: HeatMap, panel: HeatPanel) -> list[alt.Tooltip]:
    return [  # Vega shows a field named "title" as the heading of the tooltip
        alt.Tooltip("row:N", title="title" if _has_named_rows(panel) else heat_map.y_title),
        alt.Tooltip("column:Q", title=heat_map.x_title, format=".6~r"),
        alt.Tooltip("value:Q", title=heat_map.value_title, format=".5~r"),
        *(alt.Tooltip(f"{name}:Q", format=".5~r") for name in panel.tooltip_values),
    ]


def _png_url(values: np.ndarray, limits: np.ndarray, colors: Sequence[str]) -> str:
    """Return a PNG data URL in which each value is a square of identical pixels."""
    channels = [[int(color[i : i + 2], 16) for color in colors] for i in (1, 3, 5)]
    pixels = np.stack([np.interp(values, limits, channel) for channel in channels], axis=-1)
    factor = -(-MIN_IMAGE_PIXELS // max(values.shape))
    pixels = pixels.round().astype(np.uint8).repeat(factor, axis=0).repeat(factor, axis=1)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
