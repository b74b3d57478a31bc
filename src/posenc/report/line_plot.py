"""Draws line charts: bands over seeds, markers, vertical lines, and labels at the ends of lines."""

from collections.abc import Iterator, Sequence
from math import log
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from posenc.report.chart import (
    TICK_LABEL,
    Chart,
    Line,
    VerticalLine,
    linear_ticks,
    log_ticks,
    widen,
)
from posenc.report.encoding_styles import PUBLISHED_DASH
from posenc.report.scale import exp
from posenc.report.vega_figure import (
    END_LABELS,
    GRAY,
    HEIGHT,
    HIDDEN,
    WIDTH,
    Figure,
    Panel,
    PanelChart,
    rounded,
    style_channel,
)

LABEL_GAP = 15  # minimum vertical distance between end labels, in pixels
LABEL_X = WIDTH + 28  # pixels from the left end of the x axis
MIN_MARKERS = 12
"""The minimum number of markers on a line with many points.

A line with at least twice this many points has markers at evenly spaced points only.
"""


def line_figure(section: str, chart: Chart) -> Figure:
    """Return the figure of a chart; with `log_y`, pages offer a log and a linear y axis."""
    with debug_mode(False):  # otherwise, Altair validates every part again at each step
        panels = [_panel(chart, i) for i in range(len(chart.subplots))]
    labels = (chart.title, chart.subtitle, chart.caption, chart.csv)
    return Figure(section, chart.file_stem, *labels, panels, chart.lines)


def spread_labels(heights: Sequence[float], gap: float, top: float) -> list[float]:
    """Return label heights that are at least `gap` apart, given ascending `heights`.

    Labels move up first; those that would exceed `top` move down instead.
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = max(top, gap * (len(placed) - 1))
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def _panel(chart: Chart, index: int) -> Panel:
    subplot = chart.subplots[index]
    default_log_y = chart.defaults_to_log_y(subplot)
    charts, data = {}, {}
    for log_y in (default_log_y, not default_log_y) if chart.log_y else (default_log_y,):
        plot = _Plot(chart, index, log_y)
        charts["log y" if log_y else "linear y"] = plot.layers()
        data |= plot.data
    return Panel(subplot.title, charts, data)


class _Plot:
    """One subplot of a chart, with a logarithmic or a linear y axis."""

    def __init__(self, chart: Chart, index: int, log_y: bool) -> None:
        self.chart, self.subplot, self.log_y = chart, chart.subplots[index], log_y
        subplot = self.subplot
        self.height = max(HEIGHT, LABEL_GAP * len(subplot.lines))
        self.x_range = chart.x_range(subplot)
        self.y_range = widen(*chart.y_extremes(subplot), log=log_y)
        self.x, self.y = self._x("x"), self._y("y")
        self.styles = {line.name: line.style for line in chart.lines}
        self.data = {
            f"lines-{index}": [row for line in subplot.lines for row in _rows(line)],
            f"labels-{index}-{'log' if log_y else 'linear'}": list(self._end_label_rows()),
        }
        self.lines, self.labels = map(self._line_chart, self.data)

    def layers(self) -> PanelChart:
        """Return all layers, from back to front."""
        layers = [
            *self._vertical_lines(),
            *self._bands(),
            *self._lines(),
            *self._markers(),
            *self._vertical_line_labels(),
            *self._end_labels(),
        ]
        return alt.layer(*layers).properties(width=WIDTH, height=self.height)

    def _x(self, field: str) -> alt.X:
        return alt.X(
            f"{field}:Q",
            title=self.chart.x_title,
            scale=alt.Scale(type="log", domain=self.x_range, nice=False),
            axis=alt.Axis(
                values=self.chart.x_ticks(self.subplot), labelExpr=TICK_LABEL, labelOverlap="greedy"
            ),
        )

    def _y(self, field: str) -> alt.Y:
        kind = "log" if self.log_y else "linear"
        ticks = log_ticks if self.log_y else linear_ticks
        return alt.Y(
            f"{field}:Q",
            title=self.chart.y_title,
            scale=alt.Scale(type=kind, domain=self.y_range, nice=False),
            axis=alt.Axis(values=ticks(*self.y_range), labelExpr=TICK_LABEL),
        )

    def _line_chart(self, data: str) -> alt.Chart:
        """Return a chart of the named data set `data`, with each row in the color of its line."""
        chart = alt.Chart(alt.NamedData(data))
        chart = chart.transform_filter(f"indexof({HIDDEN}, datum.line) < 0")
        return chart.encode(
            x=self.x, y=self.y, color=style_channel(alt.Color, "line", self.styles, "color")
        )

    def _vertical_lines(self) -> Iterator[alt.Chart]:
        for line in self.subplot.vertical_lines:
            rule = self._vertical_line_chart(line).mark_rule(color=GRAY)
            yield rule.encode(strokeDash=alt.value([1, 3] if line.dotted else [5, 4]))

    def _vertical_line_labels(self) -> Iterator[alt.Chart]:
        """Yield the labels at the upper ends of vertical lines, with a white outline."""
        for line in self.subplot.vertical_lines:
            label = self._vertical_line_chart(line).encode(y=alt.value(0), text="text:N")
            left, right = self.x_range
            options: dict[str, Any] = {"align": "left", "dx": 5}
            if log(line.x / left) >= 0.6 * log(right / left):
                options = {"align": "right", "dx": -5}
            options.update(dy=8 + 13 * line.row, lineBreak="\n")
            yield label.mark_text(stroke="white", strokeWidth=4, strokeJoin="round", **options)
            yield label.mark_text(color=GRAY, **options)

    def _vertical_line_chart(self, line: VerticalLine) -> alt.Chart:
        data = alt.Data(values=[{"x": line.x, "text": line.label}])
        return alt.Chart(data).encode(x=self.x)

    def _bands(self) -> Iterator[alt.Chart]:
        """Yield the bands of lines, and error bars for lines with a single point."""
        banded = self.lines.transform_filter("isValid(datum.low)")
        banded = banded.encode(y=self._y("low"), y2="high:Q")
        if any(len(line.points) > 1 for line in self.subplot.lines):
            yield banded.transform_filter("!datum.single").mark_area(opacity=0.16)
        if any(len(line.points) == 1 for line in self.subplot.lines):
            yield banded.transform_filter("datum.single").mark_rule(strokeWidth=1.5)

    def _lines(self) -> Iterator[alt.Chart]:
        measured = self.lines.transform_filter("!datum.published").mark_line(strokeWidth=2)
        yield measured.encode(strokeDash=style_channel(alt.StrokeDash, "line", self.styles, "dash"))
        published = self.lines.transform_filter("datum.published")
        yield published.mark_line(strokeWidth=1.3, strokeDash=list(PUBLISHED_DASH))

    def _markers(self) -> Iterator[alt.Chart]:
        """Yield the markers, hollow for published lines, and the tooltip target of every point."""
        shape = style_channel(alt.Shape, "line", self.styles, "marker_path")
        markers = self.lines.encode(shape=shape)
        measured = markers.transform_filter("datum.marker && !datum.published")
        yield measured.mark_point(filled=True, size=60, stroke="white", strokeWidth=0.7, opacity=1)
        published = markers.transform_filter("datum.marker && datum.published")
        yield published.mark_point(filled=False, size=50, fill="white", strokeWidth=1.2, opacity=1)
        tooltip = [
            alt.Tooltip("line:N", title="title"),  # Vega shows this field as a heading
            alt.Tooltip("x:Q", title=self.chart.x_title, format=".6~r"),
            alt.Tooltip("y:Q", title=self.chart.y_title, format=".5~r"),
            alt.Tooltip("details:N", title="details"),
        ]
        targets = self.lines.transform_filter(f"!{END_LABELS}").mark_circle(size=250, opacity=0)
        yield targets.encode(tooltip=tooltip)

    def _end_labels(self) -> Iterator[alt.Chart]:
        """Yield the name of each line to the right of the plot and a leader line from its end."""
        labels = self.labels.transform_filter(END_LABELS)
        leaders = labels.mark_rule(strokeWidth=0.7, xOffset=5, x2Offset=-4)
        yield leaders.encode(x2=alt.value(LABEL_X), y2="label_y:Q")
        names = labels.mark_text(align="left", fontSize=11)
        yield names.encode(x=alt.value(LABEL_X), y=self._y("label_y"), text="line:N")

    def _end_label_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the end point of each line and the y at which its label overlaps no other label."""
        low, high = map(log, self.y_range) if self.log_y else self.y_range
        scale = (high - low) / self.height
        last_points = [(line.points[-1], line.name) for line in self.subplot.lines]
        ends = sorted((point.y.mean, point.x, name) for point, name in last_points)
        pixels = [((log(y) if self.log_y else y) - low) / scale for y, _, _ in ends]
        heights = spread_labels(pixels, LABEL_GAP, self.height)
        for (y, x, name), height in zip(ends, heights, strict=True):
            label_y = low + height * scale
            label_y = exp(label_y) if self.log_y else label_y
            yield rounded({"line": name, "x": x, "y": y, "label_y": label_y})


def _rows(line: Line) -> Iterator[dict[str, Any]]:
    """Yield a row for each point; without bands, the rows have no keys `low` and `high`."""
    marker_step = max(1, len(line.points) // MIN_MARKERS)
    has_band = not line.published and any(point.y.seeds > 1 for point in line.points)
    for i, point in enumerate(line.points):
        row: dict[str, Any] = {"line": line.name, "x": point.x, "y": point.y.mean}
        row |= {"published": True} if line.published else {}
        row |= {"marker": True} if i % marker_step == 0 else {}
        row |= {"low": point.y.low, "high": point.y.high} if has_band else {}
        row |= {"single": True} if len(line.points) == 1 else {}
        interval = f"{point.y.low:.6g} to {point.y.high:.6g}, {point.y.description}"
        details = ". ".join(filter(None, (point.y.description and interval, point.note)))
        yield rounded(row | ({"details": details} if details else {}))
