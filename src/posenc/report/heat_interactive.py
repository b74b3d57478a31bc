"""Heat maps on the page: plotly, from the same numbers as those on paper."""

from html import escape
from math import log10

import numpy as np
import plotly.graph_objects as go

from posenc.report.charts import Mark
from posenc.report.kinds.heat import HeatFrame, HeatMap
from posenc.report.plot import Place, mark_lines, panels, place_of
from posenc.report.ticks import x_ticks

ROW = 30  # pixels
HOVER = (
    "<b>%{y}</b><br>around position %{customdata[1]:.6g}<br>loss %{customdata[0]:.4f} nats per"
    " token<br>%{z:.4f} above the best<extra></extra>"
)


def interactive_heat(heat: HeatMap) -> go.Figure:
    tallest = max(len(frame.labels) for frame in heat.frames)
    figure = panels([frame.heading for frame in heat.frames], 150 + ROW * tallest)
    for i, frame in enumerate(heat.frames):
        place = place_of(i, len(heat.frames))
        figure.add_trace(_trace(frame), **place)
        _axes(figure, frame, place)
        mark_lines(figure, (Mark(frame.train_length, ""),), place)
    bar = {"title": {"text": "nats per token<br>above the best", "side": "right"}}
    scale = {"colorscale": "Cividis_r", "cmin": 0, "cmax": heat.highest or 1, "colorbar": bar}
    return figure.update_layout(coloraxis=scale)


def _trace(frame: HeatFrame) -> go.Heatmap:
    at = np.broadcast_to(np.array(frame.at), frame.loss.shape)
    return go.Heatmap(
        x=list(frame.edges),
        y=[escape(label) for label in frame.labels],
        z=_lists(frame.above),
        customdata=np.stack([frame.loss, at], axis=-1).tolist(),
        coloraxis="coloraxis",
        hovertemplate=HOVER,
        hoverongaps=False,
    )


def _lists(values: np.ndarray) -> list[list[float | None]]:
    """Nested lists, None for NaN."""
    return [[None if np.isnan(x) else float(x) for x in row] for row in values]


def _axes(figure: go.Figure, frame: HeatFrame, place: Place) -> None:
    at = x_ticks(frame.edges[0], frame.edges[-1], frame.train_length)
    range_ = [log10(frame.edges[0]), log10(frame.edges[-1])]
    names = {"title": "Position in the window (tokens)", "ticktext": [str(n) for n in at]}
    figure.update_xaxes(type="log", range=range_, tickvals=at, **names, **place)
    figure.update_yaxes(autorange="reversed", **place)
