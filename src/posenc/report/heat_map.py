"""Figures of heat maps: values over a plane as colours, one panel or several side by side.

    planes = HeatMap(
        file="planes",
        title="Bias over query and key",
        x_title="key",
        y_title="query",
        value_title="bias",
        panels=(HeatPanel("alibi", values, rows=range(64), columns=range(64)),),
        reading="How to read the figure.",
        csv=csv_text(...),
        diverging=True,
    )
    figure = heat_figure("scores", planes)

A panel of more than MAX_CELLS cells is drawn as one image, without values under the pointer.
"""

import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np

from posenc.report.axes import TICK, token_ticks
from posenc.report.vega_figure import HEIGHT, WIDTH, Figure, Panel, rounded

MAX_CELLS = 2_500
ROW_HEIGHT = 26  # pixels of a row that has a name
IMAGE_PIXELS = 512  # of the longer side of an image, at least
CIVIDIS = (  # from low to high; read alike with and without red-green blindness
    *("#fee838", "#ddc858", "#bbad6d", "#9a9376", "#7c7b78", "#60646f", "#424e6c", "#18376f"),
    "#00224e",
)
RED_BLUE = (  # ColorBrewer's; 0 is white
    *("#053061", "#2065ab", "#4393c3", "#90c4dd", "#d1e5f0", "#f7f6f6", "#fddbc7", "#f3a481"),
    *("#d6604d", "#b1182b", "#67001f"),
)


@dataclass(frozen=True)
class HeatPanel:
    """Values [rows, columns], NaN where nothing was measured.

    `rows` are names, or evenly spaced numbers. `columns` are evenly spaced too, or they have
    `edges` (one more than columns) on a logarithmic axis whose ticks are `tick_unit` times powers
    of two. `others` are further values of each cell that the pointer shows.
    """

    title: str
    values: np.ndarray
    rows: Sequence[str] | Sequence[float]
    columns: Sequence[float]
    edges: Sequence[float] = ()
    tick_unit: int | None = None
    vertical_line: float | None = None
    others: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class HeatMap:
    """Panels under one title. Colours run from 0 to the highest value of all panels; `diverging`
    ones run from minus to plus the largest value of each panel."""

    file: str
    title: str
    x_title: str
    y_title: str
    value_title: str
    panels: Sequence[HeatPanel]
    reading: str
    csv: str
    subtitle: str = ""
    diverging: bool = False

    def colour_range(self, panel: HeatPanel) -> tuple[float, float]:
        if self.diverging:
            largest = float(np.nanmax(np.abs(panel.values))) or 1.0
            return -largest, largest
        return 0.0, max(float(np.nanmax(each.values)) for each in self.panels) or 1.0


def heat_figure(section: str, heat_map: HeatMap) -> Figure:
    """Return the figure of a heat map."""
    panels = [_panel(heat_map, i) for i in range(len(heat_map.panels))]
    texts = (heat_map.title, heat_map.subtitle, heat_map.reading, heat_map.csv)
    return Figure(section, heat_map.file, *texts, panels)


def _panel(heat_map: HeatMap, index: int) -> Panel:
    panel, name = heat_map.panels[index], f"cells-{index}"
    colours = list(RED_BLUE if heat_map.diverging else CIVIDIS)
    limits = np.linspace(*heat_map.colour_range(panel), len(colours))
    scale = alt.Scale(domain=limits.tolist(), range=colours, interpolate="rgb")
    legend = alt.Legend(type="gradient", orient="bottom", gradientLength=240, gradientThickness=9)
    colour = alt.Color("value:Q", title=heat_map.value_title, scale=scale, legend=legend)
    cells = alt.Chart(alt.NamedData(name)).encode(*_axes(heat_map, panel))
    if panel.values.size > MAX_CELLS:
        rows = [_extent(panel) | {"url": _png_url(panel.values, limits, colours)}]
        ends = alt.Chart(alt.Data(values=[{"value": limits[0]}, {"value": limits[-1]}]))
        layers = [cells.mark_image(aspect=False).encode(url="url:N")]
        layers += [ends.mark_point(opacity=0).encode(color=colour)]  # for the legend alone
    else:
        rows = list(_cell_rows(panel))
        layers = [cells.mark_rect().encode(color=colour, tooltip=_tooltip(heat_map, panel))]
    if panel.vertical_line is not None:
        line = alt.Chart(alt.Data(values=[{"x": panel.vertical_line}])).encode(x="x:Q")
        layers += [line.mark_rule(color="black", strokeDash=[5, 4])]
    height = ROW_HEIGHT * len(panel.rows) if _named(panel) else HEIGHT
    chart = alt.layer(*layers).properties(width=WIDTH, height=height)
    return Panel(panel.title, {"": chart}, {name: rows})


def _named(panel: HeatPanel) -> bool:
    return isinstance(panel.rows[0], str)


def _axes(heat_map: HeatMap, panel: HeatPanel) -> list[Any]:
    """Return the channels that place a cell: x, x2, y and, where rows are numbers, y2."""
    extent = _extent(panel)
    scale: dict[str, Any] = {"domain": [extent["x"], extent["x2"]], "nice": False}
    axis: dict[str, Any] = {"grid": False, "tickMinStep": 1}
    if panel.edges:
        scale["type"] = "log"
        ticks = token_ticks(extent["x"], extent["x2"], panel.tick_unit or 1)
        axis |= {"values": ticks, "labelExpr": TICK, "labelOverlap": "greedy"}
    x = alt.X("x:Q", title=heat_map.x_title, scale=alt.Scale(**scale), axis=alt.Axis(**axis))
    if _named(panel):
        return [x, alt.X2("x2:Q"), alt.Y("row:N", sort=None, title=None)]
    down = alt.Scale(domain=[extent["y"], extent["y2"]], nice=False, reverse=True)
    y = alt.Y("y:Q", title=heat_map.y_title, scale=down, axis=alt.Axis(grid=False, tickMinStep=1))
    return [x, alt.X2("x2:Q"), y, alt.Y2("y2:Q")]


def _extent(panel: HeatPanel) -> dict[str, float]:
    """Return the outer edges of all cells."""
    x = panel.edges or _edges(panel.columns)
    y = [0.0] if _named(panel) else _edges(panel.rows)
    return {"x": x[0], "x2": x[-1], "y": y[0], "y2": y[-1]}


def _edges(numbers: Sequence[Any]) -> list[float]:
    """Return the edges of cells that are centred on evenly spaced numbers."""
    half = (numbers[-1] - numbers[0]) / max(1, len(numbers) - 1) / 2 or 0.5
    return [float(numbers[0]) - half, *(float(number) + half for number in numbers)]


def _cell_rows(panel: HeatPanel) -> Iterator[dict[str, Any]]:
    x_edges = panel.edges or _edges(panel.columns)
    y_edges = () if _named(panel) else _edges(panel.rows)
    for i, j in np.argwhere(~np.isnan(panel.values)).tolist():
        row = {"row": panel.rows[i], "column": panel.columns[j], "value": panel.values[i, j]}
        row |= {"x": x_edges[j], "x2": x_edges[j + 1]}
        row |= {"y": y_edges[i], "y2": y_edges[i + 1]} if y_edges else {}
        others = {name: float(values[i, j]) for name, values in panel.others.items()}
        yield rounded({**row, "value": float(row["value"]), **others})


def _tooltip(heat_map: HeatMap, panel: HeatPanel) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("row:N", title="title" if _named(panel) else heat_map.y_title),
        alt.Tooltip("column:Q", title=heat_map.x_title, format=".6~r"),
        alt.Tooltip("value:Q", title=heat_map.value_title, format=".5~r"),
        *(alt.Tooltip(f"{name}:Q", format=".5~r") for name in panel.others),
    ]


def _png_url(values: np.ndarray, limits: np.ndarray, colours: Sequence[str]) -> str:
    """Return an image with a square of pixels for each value as a data URL."""
    channels = [[int(colour[i : i + 2], 16) for colour in colours] for i in (1, 3, 5)]
    pixels = np.stack([np.interp(values, limits, channel) for channel in channels], axis=-1)
    factor = -(-IMAGE_PIXELS // max(values.shape))
    pixels = pixels.round().astype(np.uint8).repeat(factor, axis=0).repeat(factor, axis=1)
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green, blue
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return f"data:image/png;base64,{b64encode(data).decode()}"
