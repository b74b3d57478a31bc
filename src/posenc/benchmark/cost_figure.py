"""The figure of a benchmark: time ratios by encoding, with larger markers for longer contexts."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np

from posenc.benchmark.bench_settings import PASS_TITLES
from posenc.report.chart import TICK_LABEL, linear_ticks, log_ticks
from posenc.report.encoding_styles import line_styles
from posenc.report.vega_figure import GRAY, WIDTH, Figure, Panel, PanelChart, style_channel
from posenc.runs.row_types import Row

MARKER_HEIGHT = 15  # pixels
MIN_MARKER_AREA, MAX_MARKER_AREA = 30, 120  # square pixels, at the shortest and longest length
MAX_LINEAR_RATIO = 2.5  # the axis is logarithmic if it extends beyond this ratio


def cost_figure(rows: Sequence[Row], title: str, subtitle: str, csv: str) -> Figure:
    """Return a figure with a panel for each pass; markers of published ratios are hollow."""
    panels = [
        Panel(pass_title.capitalize(), {"": _panel(rows, pass_)}, {f"ratios-{pass_}": points})
        for pass_, pass_title in PASS_TITLES.items()
        if (points := list(_points(rows, pass_)))
    ]
    if any(row["published_ratio"] is not None for row in rows):
        subtitle += ". Hollow markers: published ratios"
    return Figure("", "bench", title, subtitle, "", csv, panels)


def _points(rows: Sequence[Row], pass_: str) -> Iterator[dict[str, Any]]:
    """Yield the chart's rows: measured ratios with their ranges, and published ratios."""
    for row in rows:
        if row["pass"] == pass_:
            key = {"encoding": row_label(row, rows), "length": f"L = {row['length']}"}
            bounds = {"low": row["ratio_lowest"], "high": row["ratio_highest"]}
            yield {**key, "ratio": row["ratio"], **bounds}
            if row["published_ratio"] is not None:
                yield {**key, "ratio": row["published_ratio"], "published": True}


def _panel(rows: Sequence[Row], pass_: str) -> PanelChart:
    encodings = {row_label(row, rows): row["encoding"].partition(" ")[0] for row in rows}
    names, styles = list(encodings), line_styles(encodings)  # as in the reports of experiments
    lengths = [f"L = {length}" for length in sorted({row["length"] for row in rows})]
    low, high = _axis_range(rows)
    kind, ticks = ("log", log_ticks) if high > MAX_LINEAR_RATIO else ("linear", linear_ticks)
    scale = alt.Scale(type=kind, domain=[low, high], nice=False, zero=False)
    axis = alt.Axis(values=ticks(low, high), labelExpr=TICK_LABEL)
    baselines = " or ".join(dict.fromkeys(row["ratio_to"] for row in rows))
    x_title = f"Time relative to {baselines} at the same length"
    chart = alt.Chart(alt.NamedData(f"ratios-{pass_}")).encode(
        x=alt.X("ratio:Q", title=x_title, scale=scale, axis=axis),
        y=alt.Y("encoding:N", sort=names, title=None, axis=alt.Axis(tickBand="extent", grid=True)),
        yOffset=alt.YOffset("length:N", sort=lengths),
        color=style_channel(alt.Color, "encoding", styles, "color"),
    )
    shape = style_channel(alt.Shape, "encoding", styles, "marker_path")
    marked = chart.encode(shape=shape, size=_size_channel(lengths))
    ranges = chart.transform_filter("!datum.published").mark_rule(strokeWidth=1.4)
    published = marked.transform_filter("datum.published")
    measured = marked.transform_filter("!datum.published")
    baseline = alt.Chart(alt.Data(values=[{"x": 1}])).encode(x=alt.X("x:Q", scale=scale))
    layers = [
        baseline.mark_rule(color=GRAY, strokeDash=[4, 3]),
        ranges.encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        published.mark_point(filled=False, opacity=1),
        measured.mark_point(filled=True, opacity=1),
    ]
    height = MARKER_HEIGHT * len(names) * (len(lengths) + 1)
    return alt.layer(*layers).properties(width=WIDTH, height=height)


def _size_channel(lengths: Sequence[str]) -> alt.Size | alt.SizeValue:
    """Return a channel that distinguishes lengths, with a legend if there are several."""
    if len(lengths) == 1:
        return alt.SizeValue(MAX_MARKER_AREA)
    areas = np.linspace(MIN_MARKER_AREA, MAX_MARKER_AREA, len(lengths)).tolist()
    scale = alt.Scale(domain=lengths, range=areas)
    legend = alt.Legend(title=None, orient="bottom", symbolStrokeColor=GRAY)
    return alt.Size("length:N", scale=scale, legend=legend)


def _axis_range(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the range of the x axis, which includes all ratios and 1."""
    published = [row["published_ratio"] for row in rows if row["published_ratio"] is not None]
    low = min(1, *published, *(row["ratio_lowest"] for row in rows))
    return 0.9 * low, 1.1 * max(1, *published, *(row["ratio_highest"] for row in rows))


def row_label(row: Row, rows: Sequence[Row]) -> str:
    """Return the label of a row's encoding, plus its kernel if several kernels were measured."""
    kernels = {other["kernel"] for other in rows if other["encoding"] == row["encoding"]}
    return f"{row['encoding']} (kernel={row['kernel']})" if len(kernels) > 1 else row["encoding"]
