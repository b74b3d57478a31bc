"""The figures of lines on the page: plotly, from the same charts as those on paper."""

from html import escape
from math import log10
from typing import Any

import plotly.graph_objects as go

from posenc.report.charts import Chart, Dot, Frame, Line
from posenc.report.plot import Place, mark_lines, panels, place_of
from posenc.report.ticks import log_ticks, tick_texts

PUBLISHED_DASH = "4px,3px"


def interactive(chart: Chart) -> go.Figure:
    figure = panels([frame.heading for frame in chart.frames])
    named: set[str] = set()
    for i, frame in enumerate(chart.frames):
        place = place_of(i, len(chart.frames))
        for line in frame.lines:
            for trace in _traces(chart, line, line.name not in named):
                figure.add_trace(trace, **place)
            named.add(line.name)
        _axes(figure, chart, frame, place)
        mark_lines(figure, frame.marks, place)
    figure.update_layout(legend={"title": {"text": "click to hide or show"}, "tracegroupgap": 2})
    if chart.ratio:
        figure.update_layout(updatemenus=[_scales(chart)])
    return figure


def _traces(chart: Chart, line: Line, named: bool) -> list[go.Scatter]:
    """A line and, where it has several seeds, its band."""
    group = {"legendgroup": line.name, "name": escape(line.name)}
    drawn = go.Scatter(
        x=[dot.at for dot in line.dots],
        y=[dot.band.mean for dot in line.dots],
        customdata=[_hover(chart, dot) for dot in line.dots],
        hovertemplate="<b>%{fullData.name}</b><br>%{customdata}<extra></extra>",
        showlegend=named,
        **_look(line),
        **group,
    )
    if line.published or all(dot.band.seeds <= 1 for dot in line.dots):
        return [drawn]
    if len(line.dots) == 1:
        return [drawn.update(_crosses(line.dots[0]))]
    at = [dot.at for dot in line.dots]
    high, low = [dot.band.high for dot in line.dots], [dot.band.low for dot in line.dots]
    band = go.Scatter(
        x=[*at, *reversed(at)],
        y=[*high, *reversed(low)],
        mode="lines",
        fill="toself",
        fillcolor=line.style.translucent(0.15),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        **group,
    )
    return [band, drawn]


def _look(line: Line) -> dict[str, Any]:
    style = line.style
    marker = {"symbol": style.symbol, "size": 7, "maxdisplayed": 14}
    if line.published:
        dashed = {"color": style.colour, "dash": PUBLISHED_DASH, "width": 1.4}
        hollow = {**marker, "symbol": f"{style.symbol}-open"}
        return {"mode": "lines+markers", "line": dashed, "marker": hollow}
    solid = {"color": style.colour, "dash": style.plotly_dash, "width": 2}
    return {"mode": "lines+markers", "line": solid, "marker": marker}


def _crosses(dot: Dot) -> dict[str, Any]:
    """The bands of a line that is a single dot."""
    bands = {"error_y": (dot.band.mean, dot.band)}
    if dot.across:
        bands["error_x"] = (dot.at, dot.across)
    return {
        axis: {"symmetric": False, "array": [of.high - at], "arrayminus": [at - of.low]}
        for axis, (at, of) in bands.items()
    }


def _hover(chart: Chart, dot: Dot) -> str:
    lines = [f"{chart.x_name}: {dot.at:.6g}", f"{chart.y_name}: {dot.band.mean:.6g}"]
    if dot.band.description:
        lines += [f"{dot.band.low:.6g} to {dot.band.high:.6g}, {dot.band.description}"]
    return "<br>".join([*lines, *([dot.note] if dot.note else [])])


def _axes(figure: go.Figure, chart: Chart, frame: Frame, place: Place) -> None:
    at, texts = chart.x_ticks(frame)
    range_ = [log10(end) for end in chart.x_range(frame)]
    names = {"title": chart.x_name, "tickvals": at, "ticktext": texts}
    figure.update_xaxes(type="log", range=range_, **names, **place)
    log = chart.log_y(frame)
    figure.update_yaxes(title=chart.y_name, **_scale(chart, frame, log), **place)


def _scale(chart: Chart, frame: Frame, log: bool) -> dict[str, Any]:
    """The settings of a y axis, logarithmic or linear."""
    low, high = chart.y_range(frame)
    if not log:
        return {"type": "linear", "range": [low, high], "tickvals": None, "ticktext": None}
    values = log_ticks(low, high)
    texts = list(tick_texts(values))
    return {"type": "log", "range": [log10(low), log10(high)]} | {
        "tickvals": values,
        "ticktext": texts,
    }


def _scales(chart: Chart) -> dict[str, Any]:
    """Two buttons that put every y axis on a linear or on a log scale."""
    buttons = []
    for word, log in (("linear y", False), ("log y", True)):
        settings: dict[str, Any] = {}
        for i, frame in enumerate(chart.frames):
            axis = f"yaxis{i + 1 if i else ''}"
            settings |= {f"{axis}.{k}": v for k, v in _scale(chart, frame, log).items()}
        buttons.append({"label": word, "method": "relayout", "args": [settings]})
    return {
        "type": "buttons",
        "direction": "right",
        "buttons": buttons,
        "active": int(chart.log_y(chart.frames[0])),
        "showactive": True,
        **{"x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom"},
        **{"pad": {"b": 22}, "font": {"size": 11}},
    }
