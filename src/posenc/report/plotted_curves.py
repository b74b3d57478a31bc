"""Converts curves to the lines of a chart, and the points of curves and lines to CSV."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc.report.chart import Chart, Line, PlotPoint, Subplot, VerticalLine
from posenc.report.confidence import zero_width_band
from posenc.report.curve_set import CurveSet, Point
from posenc.report.encoding_styles import Style
from posenc.report.published_curves import PublishedCurve
from posenc.report.scale import exp
from posenc.report.table import records_csv

Styles = Mapping[str, Style]


def shared_evaluation(curve_sets: Sequence[CurveSet]) -> str:
    """Return the evaluation that all curve sets share, or an empty string if they differ."""
    evaluations = {str(curves.evaluation_key) for curves in curve_sets}
    return evaluations.pop() if len(evaluations) == 1 else ""


def subplot_title(curves: CurveSet, curve_sets: Sequence[CurveSet]) -> str:
    """Return the title of a subplot, with its evaluation if that differs between subplots."""
    title = f"{curves.swapped_encoding}, " if curves.swapped_encoding else ""
    title += f"trained at L = {curves.train_length}"
    if curves.window:
        count = "" if curves.num_windows is None else f"{curves.num_windows} "
        title += f", evaluated in {count}windows of {curves.window}"
    return title if shared_evaluation(curve_sets) else f"{title}\n{curves.evaluation_key}"


def curve_chart(
    curve_sets: Sequence[CurveSet],
    lines: Sequence[Sequence[Line]],
    *,
    titles: Sequence[str] = (),
    vertical_lines: Sequence[Sequence[VerticalLine]] = (),
    **options: Any,
) -> Chart | None:
    """Return a chart with one subplot of lines for each curve set, or None if there are none.

    Without `vertical_lines`, x is in tokens and a vertical line marks the training length.
    `options` are the other fields of the chart. For curves of swaps, its file stem and its title
    mention the swaps.
    """
    if not curve_sets:
        return None
    if curve_sets[0].swapped_encoding:
        options["file_stem"] += "_with_swaps"
        options["title"] += ": swaps"
    subplots = []
    for i, curves in enumerate(curve_sets):
        title = titles[i] if titles else subplot_title(curves, curve_sets)
        length = curves.train_length
        vertical, tick_unit = [VerticalLine(length, "training length")], length
        if vertical_lines:
            vertical, tick_unit = vertical_lines[i], None
        y_group = str(curves.evaluation_key)
        subplots.append(Subplot(title, tuple(lines[i]), y_group, tuple(vertical), tick_unit))
    common_text = "" if titles else shared_evaluation(curve_sets)
    return Chart(subplots=tuple(subplots), common_text=common_text, **options)


def curve_lines(
    curves: CurveSet, styles: Styles, transform: Callable[[float], float] = float
) -> list[Line]:
    """Return a line for each curve, with `transform` applied to its values."""
    lines = []
    for curve in curves.curves:
        points = tuple(plot_point(point).transformed(transform) for point in curve.points)
        lines.append(Line(curve.label, styles[curve.label], points))
    return lines


def plot_point(point: Point) -> PlotPoint:
    return PlotPoint(point.x, point.band, note=f"{point.tokens} tokens scored")


def published_line(label: str, curve: PublishedCurve, styles: Styles) -> Line:
    """Return a published curve as a line in the style of the measured curve `label`."""
    values = sorted(curve.values.items())
    points = (PlotPoint(x, zero_width_band(y), note=curve.source) for x, y in values)
    return Line(label, styles[label], tuple(points), published=True)


def losses_csv(curve_sets: Sequence[CurveSet], x_column: str) -> str:
    """Return CSV with a row for each point of the curve sets; losses are in nats per token.

    `x_column` names the column of evaluation lengths or positions. The column `band` describes
    `low` and `high`.
    """
    return records_csv(
        [
            {
                **curves.key,
                curves.label_heading: curve.label,
                x_column: f"{point.x:.6g}",
                "loss": f"{point.mean:.6f}",
                "low": f"{point.band.low:.6f}",
                "high": f"{point.band.high:.6f}",
                "band": point.band.description or None,
                "perplexity": f"{exp(point.mean):.6f}",
                "seeds": len(point.seeds),
                "tokens": point.tokens,
            }
            for curves in curve_sets
            for curve in curves.curves
            for point in curve.points
        ]
    )


def plotted_points_csv(
    curve_sets: Sequence[CurveSet], lines: Sequence[Sequence[Line]], x: str, y: str, label: str = ""
) -> str:
    """Return CSV with a row for each plotted point; `lines` has the lines of each curve set.

    `x`, `y` and `label` are column names; `label` defaults to the `label_heading` of the curve set.
    The column `band` describes `low` and `high`.
    """
    return records_csv(
        [
            {
                **curves.key,
                label or curves.label_heading: line.label,
                "published": str(line.published).lower(),
                x: f"{point.x:.6g}",
                y: f"{point.y.mean:.6g}",
                "low": f"{point.y.low:.6g}",
                "high": f"{point.y.high:.6g}",
                "band": point.y.description or None,
            }
            for curves, subplot_lines in zip(curve_sets, lines, strict=True)
            for line in subplot_lines
            for point in line.points
        ]
    )
