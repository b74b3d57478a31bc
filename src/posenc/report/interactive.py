"""The figures on the page: plotly, from the same charts as those on paper."""

from html import escape
from math import log10

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from posenc.report.charts import Chart, log_ticks, tick_texts, x_ticks
from posenc.report.curves import Panel, Series
from posenc.report.style import Style

COLUMNS = 2
PANEL_HEIGHT = 400
GREY = "#555555"
OPTIONS = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "showSendToCloud": False,  # on by default: a button that uploads the data
    "plotlyServerURL": "",
}


def figure_html(chart: Chart, styles: dict[str, Style]) -> str:
    """A `div` and its script; the page brings plotly.js itself."""
    return interactive(chart, styles).to_html(
        full_html=False, include_plotlyjs=False, div_id=chart.file, config=OPTIONS
    )


def interactive(chart: Chart, styles: dict[str, Style]) -> go.Figure:
    columns = min(COLUMNS, len(chart.panels))
    rows = -(-len(chart.panels) // columns)
    headings = [escape(chart.heading(panel)).replace("\n", "<br>") for panel in chart.panels]
    figure = make_subplots(
        rows, columns, subplot_titles=headings, horizontal_spacing=0.09, vertical_spacing=0.2 / rows
    )
    named: set[str] = set()
    for i, panel in enumerate(chart.panels):
        place = {"row": i // columns + 1, "col": i % columns + 1}
        for series in panel.series:
            style, new = styles[series.label], series.label not in named
            for trace in _traces(chart, series, style, new):
                figure.add_trace(trace, **place)
            named.add(series.label)
        _axes(figure, chart, panel, place)
    figure.update_layout(
        template="plotly_white",
        height=rows * PANEL_HEIGHT + 60,
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"title": {"text": "click to hide or show"}, "tracegroupgap": 2},
        hovermode="closest",
    )
    return figure


def _traces(chart: Chart, series: Series, style: Style, named: bool) -> list[go.Scatter]:
    """The line of a series and, where it has several seeds, the band between them."""
    at = [point.at for point in series.points]
    mean, low, high = zip(*map(chart.values, series.points), strict=True)
    group = {"legendgroup": series.label, "name": escape(series.label)}
    line = go.Scatter(
        x=at,
        y=mean,
        mode="lines+markers",
        line={"color": style.colour, "dash": style.plotly_dash, "width": 2},
        marker={"symbol": style.symbol, "size": 7, "maxdisplayed": 14},
        customdata=[_hover(chart, series, i) for i in range(len(at))],
        hovertemplate="<b>%{fullData.name}</b><br>%{customdata}<extra></extra>",
        showlegend=named,
        **group,
    )
    if all(len(point.seeds) == 1 for point in series.points):
        return [line]
    band = go.Scatter(
        x=[*at, *reversed(at)],
        y=[*high, *reversed(low)],
        mode="lines",
        fill="toself",
        fillcolor=style.translucent(0.15),
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        **group,
    )
    return [band, line]


def _hover(chart: Chart, series: Series, index: int) -> str:
    point = series.points[index]
    mean, low, high = chart.values(point)
    where = f"{chart.x_name}: {point.at:.6g}"
    what = f"{chart.y_name}: {mean:.6g}"
    band = f"lowest {low:.6g}, highest {high:.6g} of {len(point.seeds)} seeds"
    lines = [where, what, *([band] if len(point.seeds) > 1 else []), f"{point.count} tokens scored"]
    return "<br>".join(lines)


def _axes(figure: go.Figure, chart: Chart, panel: Panel, place: dict[str, int]) -> None:
    x_range, y_range = chart.x_range(panel), chart.y_range(panel)
    at = x_ticks(*x_range, panel.train_length)
    figure.update_xaxes(
        type="log",
        range=[log10(end) for end in x_range],
        tickvals=at,
        ticktext=[str(n) for n in at],
        title=chart.x_name,
        **place,
    )
    if chart.log_y(panel):
        values = log_ticks(*y_range)
        texts = list(tick_texts(values))
        range_ = [log10(end) for end in y_range]
        figure.update_yaxes(type="log", range=range_, tickvals=values, ticktext=texts, **place)
    else:
        figure.update_yaxes(range=list(y_range), **place)
    figure.update_yaxes(title=chart.y_name, **place)
    dashed = {"color": GREY, "dash": "dash", "width": 1}
    figure.add_vline(panel.train_length, line=dashed, **place)
    figure.add_annotation(
        text="training length",
        x=log10(panel.train_length),  # an annotation's place on a log axis is an exponent
        y=1,
        yref="y domain",
        xanchor="left",
        yanchor="top",
        showarrow=False,
        font={"size": 11, "color": GREY},
        **place,
    )
