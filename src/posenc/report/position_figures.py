"""Figures of loss by position in the window: a line chart and a heat map."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

import numpy as np

from posenc.config.paths import NO_SWAP
from posenc.report.chart import Chart, Line, PlotPoint
from posenc.report.confidence import band, describe_bands
from posenc.report.curve_set import CurveSet
from posenc.report.heat_map import HeatMap, HeatPanel
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    curve_lines,
    losses_csv,
    plotted_points_csv,
    shared_evaluation,
    subplot_title,
)
from posenc.report.table import records_csv

X_TITLE = "Position in the window (tokens)"
UNSEEN_POSITIONS = "Positions to the right of the dashed line are beyond the training length."
LOSS_CAPTION = (
    f"Lower is better. Each point is the mean loss over neighboring positions. {UNSEEN_POSITIONS}"
)
DIFFERENCE_CAPTION = (
    "Below zero, the loss is lower than that of {reference} at the same positions of the same"
    " windows. Each point averages over neighboring positions; differences are paired by seed."
    f" {UNSEEN_POSITIONS}"
)
HEAT_MAP_CAPTION = (
    "The loss of each encoding minus the loss of the best encoding at the same positions: the"
    f" lightest cell of a column is the best encoding. {UNSEEN_POSITIONS}"
)


def loss_by_position(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return a chart with a subplot for each corpus, split and training length.

    For swaps, each encoding has its own subplots.

    Losses differ much less between encodings than between positions, so the chart shows them
    relative to nope or, without it, the first encoding that is in all subplots. It shows the losses
    themselves if there is no such encoding, or if a subplot has only one encoding.
    """
    reference = _reference_label(curve_sets)
    if reference is None:
        return curve_chart(
            curve_sets,
            [curve_lines(curves, styles) for curves in curve_sets],
            file_stem="loss_by_position",
            title="Loss by position in the window",
            x_title=X_TITLE,
            y_title="Loss (nats per token)",
            caption=LOSS_CAPTION,
            csv=losses_csv(curve_sets, "position"),
        )
    lines = [_difference_lines(curves, reference, styles) for curves in curve_sets]
    name = "the encoding without a swap" if reference == NO_SWAP else reference
    return curve_chart(
        curve_sets,
        lines,
        file_stem="loss_by_position",
        title=f"Loss by position, minus the loss of {name}",
        x_title=X_TITLE,
        y_title=f"Loss minus that of {name} (nats)",
        caption=DIFFERENCE_CAPTION.format(reference=name),
        csv=plotted_points_csv(curve_sets, lines, "position", "loss_difference"),
    )


def loss_heat_map(curve_sets: Sequence[CurveSet]) -> HeatMap | None:
    """Return a heat map with a panel for each set of several curves, or None if there are none."""
    shown_sets = [curves for curves in curve_sets if len(curves.curves) > 1]
    if not shown_sets:
        return None
    panels = tuple(_panel(curves, subplot_title(curves, shown_sets)) for curves in shown_sets)
    bands = (p.band for curves in shown_sets for curve in curves.curves for p in curve.points)
    seeds_note = describe_bands(bands).partition(";")[0]
    return HeatMap(
        file_stem="loss_by_position_heat",
        title="Excess loss over the best encoding, by position",
        x_title=X_TITLE,
        y_title="",
        value_title="Excess loss (nats per token)",
        panels=panels,
        caption=HEAT_MAP_CAPTION,
        csv=_csv(shown_sets, panels),
        subtitle=". ".join(filter(None, (shared_evaluation(shown_sets), seeds_note))),
    )


def _reference_label(curve_sets: Sequence[CurveSet]) -> str | None:
    """Return the label of nope or, without it, the first label that all curve sets have.

    Returns None if there is no such label, or if a curve set has only one curve.
    """
    if any(len(curves.curves) < 2 for curves in curve_sets):
        return None
    shared = [
        curve
        for curve in (curve_sets[0].curves if curve_sets else ())
        if all(curve.label in curves.by_label for curves in curve_sets)
    ]
    nope = [curve.label for curve in shared if curve.encoding == "nope"]
    return next(iter([*nope, *(curve.label for curve in shared)]), None)


def _difference_lines(curves: CurveSet, reference: str, styles: Styles) -> list[Line]:
    """Return a line for each curve; the line of the reference is at zero."""
    references = {point.x: point for point in curves.by_label[reference].points}
    lines = []
    for curve in curves.curves:
        points = tuple(
            PlotPoint(point.x, band(differences), note=f"{point.tokens} tokens scored")
            for point in curve.points
            if point.x in references and (differences := point.differences(references[point.x]))
        )
        lines.append(Line(curve.label, styles[curve.label], points))
    return [line for line in lines if line.points]


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
    """Return bin edges halfway between positions on a log axis.

    The outer bins extend equally far on both sides of their position.
    """
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
                "excess_loss": f"{panel.values[i, j]:.6f}",
            }
            for curves, panel in zip(curve_sets, panels, strict=True)
            for i, j in np.argwhere(~np.isnan(panel.values))
        ]
    )
