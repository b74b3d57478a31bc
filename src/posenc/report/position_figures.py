"""Figures of loss by position in the window: a line chart and a heat map."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import numpy as np

from posenc.report.chart import Chart
from posenc.report.confidence import describe_bands
from posenc.report.curve_set import CurveSet
from posenc.report.heat_map import HeatMap, HeatPanel
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    curve_lines,
    losses_csv,
    shared_measurement,
    subplot_title,
)
from posenc.report.table import records_csv

X_TITLE = "Position in the window (tokens)"
UNSEEN_POSITIONS = "Positions to the right of the dashed line did not occur in training."
LINE_CAPTION = (
    "Lower is better. Each point is the mean loss over neighboring positions in the longest windows"
    f" that were evaluated. {UNSEEN_POSITIONS}"
)
HEAT_MAP_CAPTION = (
    "The loss of each encoding minus the loss of the best encoding at the same positions: in each"
    f" column, the lightest encoding is the best. {UNSEEN_POSITIONS}"
)


def loss_by_position(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return a chart with a subplot for each measurement and training length."""
    return curve_chart(
        curve_sets,
        [curve_lines(curves, styles) for curves in curve_sets],
        file_stem="loss_by_position",
        title="Loss by position in the window",
        x_title=X_TITLE,
        y_title="Loss (nats per token)",
        caption=LINE_CAPTION,
        csv=losses_csv(curve_sets, "position"),
    )


def loss_heat_map(curve_sets: Sequence[CurveSet]) -> HeatMap | None:
    """Return a panel for each curve set with several encodings, or None if there are none."""
    shown_sets = [curves for curves in curve_sets if len(curves.curves) > 1]
    if not shown_sets:
        return None
    panels = tuple(_panel(curves, subplot_title(curves, shown_sets)) for curves in shown_sets)
    bands = (p.band for curves in shown_sets for curve in curves.curves for p in curve.points)
    seeds_note = describe_bands(bands).partition(";")[0]
    return HeatMap(
        file_stem="loss_by_position_heat",
        title="Loss by position above the best encoding",
        x_title=X_TITLE,
        y_title="",
        value_title="Nats per token above the best",
        panels=panels,
        caption=HEAT_MAP_CAPTION,
        csv=_csv(shown_sets, panels),
        subtitle=". ".join(filter(None, (shared_measurement(shown_sets), seeds_note))),
    )


def _panel(curves: CurveSet, title: str) -> HeatPanel:
    positions = curves.x_values
    loss = np.array(
        [[p.mean if (p := c.point_at(x)) else np.nan for x in positions] for c in curves.curves]
    )
    return HeatPanel(
        title,
        values=loss - np.nanmin(loss, axis=0),
        rows=[curve.label for curve in curves.curves],
        columns=positions,
        edges=_bin_edges(positions),
        tick_unit=curves.train_length,
        vertical_line=curves.train_length,
        tooltip_values={"loss": loss},
    )


def _bin_edges(positions: Sequence[float]) -> tuple[float, ...]:
    """Return edges halfway between positions on a log axis; the outer bins are symmetric."""
    if len(positions) == 1:
        return (positions[0] / 2, positions[0] * 2)
    inner = [sqrt(a * b) for a, b in pairwise(positions)]
    return (positions[0] ** 2 / inner[0], *inner, positions[-1] ** 2 / inner[-1])


def _csv(curve_sets: Sequence[CurveSet], panels: Sequence[HeatPanel]) -> str:
    return records_csv(
        [
            {
                **curves.key,
                "encoding": panel.rows[i],
                "position": f"{panel.columns[j]:.6g}",
                "loss": f"{panel.tooltip_values['loss'][i, j]:.6f}",
                "above_best": f"{panel.values[i, j]:.6f}",
            }
            for curves, panel in zip(curve_sets, panels, strict=True)
            for i, j in np.argwhere(~np.isnan(panel.values))
        ]
    )
