"""Figures over the position in the window: loss as lines, and as a heat map of encodings."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import numpy as np

from posenc.report.chart import Chart
from posenc.report.confidence import describe_bands
from posenc.report.curves import CurveSet
from posenc.report.heat_map import HeatMap, HeatPanel
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    curve_lines,
    points_csv,
    shared_measurement,
    subplot_title,
)
from posenc.report.table import records_csv

X_TITLE = "Position in the window (tokens)"
LINES = (
    "Lower is better. Each point is the mean loss over neighbouring positions, in the longest"
    " windows that were evaluated. Right of the dashed line are positions that the model never saw"
    " in training."
)
HEAT = (
    "The loss of each encoding minus that of the best one at the same positions: in each column the"
    " lightest encoding is the best. Right of the dashed line are positions that the model never"
    " saw in training."
)


def loss_by_position(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return a subplot for each measurement and training length."""
    if not curve_sets:
        return None
    return curve_chart(
        curve_sets,
        [curve_lines(curves, styles) for curves in curve_sets],
        file="loss_by_position",
        title="Loss by position in the window",
        x_title=X_TITLE,
        y_title="Loss (nats per token)",
        reading=LINES,
        csv=points_csv(curve_sets, "position"),
    )


def loss_heat_map(curve_sets: Sequence[CurveSet]) -> HeatMap | None:
    """Return a panel for each curve set of two encodings or more; None where there is none."""
    shown = [curves for curves in curve_sets if len(curves.curves) > 1]
    if not shown:
        return None
    panels = tuple(_panel(curves, subplot_title(curves, shown)) for curves in shown)
    bands = (p.band for curves in shown for curve in curves.curves for p in curve.points)
    seeds = describe_bands(bands).partition(";")[0]
    return HeatMap(
        file="loss_by_position_heat",
        title="Loss by position above the best encoding",
        x_title=X_TITLE,
        y_title="",
        value_title="Nats per token above the best",
        panels=panels,
        reading=HEAT,
        csv=_csv(shown, panels),
        subtitle=". ".join(filter(None, (shared_measurement(shown), seeds))),
    )


def _panel(curves: CurveSet, title: str) -> HeatPanel:
    places = curves.places
    losses = [[p.mean if (p := c.at(at)) else np.nan for at in places] for c in curves.curves]
    loss = np.array(losses)
    return HeatPanel(
        title,
        values=loss - np.nanmin(loss, axis=0),
        rows=[curve.label for curve in curves.curves],
        columns=places,
        edges=_edges(places),
        tick_unit=curves.train_length,
        vertical_line=curves.train_length,
        others={"loss": loss},
    )


def _edges(places: Sequence[float]) -> tuple[float, ...]:
    """Return edges halfway between neighbours on a log axis, and as far again at either end."""
    if len(places) == 1:
        return (places[0] / 2, places[0] * 2)
    inner = [sqrt(a * b) for a, b in pairwise(places)]
    return (places[0] ** 2 / inner[0], *inner, places[-1] ** 2 / inner[-1])


def _csv(curve_sets: Sequence[CurveSet], panels: Sequence[HeatPanel]) -> str:
    return records_csv(
        [
            {
                **curves.key,
                "encoding": panel.rows[i],
                "position": f"{panel.columns[j]:.6g}",
                "loss": f"{panel.others['loss'][i, j]:.6f}",
                "above_best": f"{panel.values[i, j]:.6f}",
            }
            for curves, panel in zip(curve_sets, panels, strict=True)
            for i, j in np.argwhere(~np.isnan(panel.values))
        ]
    )
