"""What figures on the page have in common: panels, marks and how a figure becomes HTML."""

from collections.abc import Sequence
from html import escape
from math import log10

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from posenc.report.charts import Mark

Place = dict[str, int]

COLUMNS = 2
PANEL_HEIGHT = 400
LINE = 15  # pixels from one line of text to the next
GREY = "#555555"
OPTIONS = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    "showSendToCloud": False,  # on by default: a button that uploads the data
    "plotlyServerURL": "",
}


def to_html(figure: go.Figure, file: str) -> str:
    """A `div` and its script; the page brings plotly.js itself."""
    return figure.to_html(full_html=False, include_plotlyjs=False, div_id=file, config=OPTIONS)


def panels(headings: Sequence[str], panel_height: int = PANEL_HEIGHT) -> go.Figure:
    """Panels of so many pixels side by side, two in a row."""
    rows = -(-len(headings) // COLUMNS)
    figure = make_subplots(
        rows,
        min(COLUMNS, len(headings)),
        subplot_titles=[escape(heading).replace("\n", "<br>") for heading in headings],
        horizontal_spacing=0.09,
        vertical_spacing=0.2 / rows,
    )
    return figure.update_layout(
        template="plotly_white",
        height=rows * panel_height + 80,
        margin={"l": 60, "r": 20, "t": 60, "b": 60},
        font={"family": "system-ui, sans-serif", "size": 13},
        hovermode="closest",
    )


def place_of(index: int, count: int) -> Place:
    columns = min(COLUMNS, count)
    return {"row": index // columns + 1, "col": index % columns + 1}


def mark_lines(figure: go.Figure, marks: Sequence[Mark], place: Place) -> None:
    """Vertical lines on a log axis, each with its text beside its upper end."""
    for mark in marks:
        dash = {"color": GREY, "dash": "dot" if mark.dotted else "dash", "width": 1.2}
        figure.add_vline(mark.at, line=dash, **place)
        figure.add_annotation(
            text=escape(mark.text).replace("\n", "<br>"),
            x=log10(mark.at),  # an annotation's place on a log axis is an exponent
            y=1,
            yref="y domain",
            xanchor="left",
            yanchor="top",
            yshift=-LINE * mark.drop,
            align="left",
            showarrow=False,
            font={"size": 11, "color": GREY},
            **place,
        )
