"""Curves as the lines of a chart, and the points of both as csv."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc.report.chart import Chart, Dot, Line, Subplot, VerticalLine
from posenc.report.confidence import Band
from posenc.report.curves import CurveSet, Point
from posenc.report.encoding_styles import Style
from posenc.report.published_curves import PublishedCurve
from posenc.report.table import records_csv

Styles = Mapping[str, Style]


def shared_measurement(curve_sets: Sequence[CurveSet]) -> str:
    """Return the measurement, if all curve sets have the same."""
    measurements = {str(curves.measurement) for curves in curve_sets}
    return measurements.pop() if len(measurements) == 1 else ""


def first_measurement(curve_sets: Sequence[CurveSet]) -> list[CurveSet]:
    """Return the curve sets of the first measurement: on the data that the runs were trained on."""
    return [c for c in curve_sets if c.measurement == curve_sets[0].measurement]


def subplot_title(curves: CurveSet, curve_sets: Sequence[CurveSet]) -> str:
    """Return the training length, and the measurement where the curve sets differ in it."""
    text = f"trained at L = {curves.train_length}"
    text += f", evaluated in windows of {curves.window}" if curves.window else ""
    return text if shared_measurement(curve_sets) else f"{text}\n{curves.measurement}"


def curve_chart(
    curve_sets: Sequence[CurveSet],
    lines: Sequence[Sequence[Line]],
    *,
    titles: Sequence[str] = (),
    marks: Sequence[Sequence[VerticalLine]] = (),
    **options: Any,
) -> Chart:
    """Return a chart with a subplot of lines for each curve set.

    Without `marks` x is in tokens and the training length is marked. `options` are the other
    fields of the chart.
    """
    subplots = []
    for i, curves in enumerate(curve_sets):
        title = titles[i] if titles else subplot_title(curves, curve_sets)
        length = curves.train_length
        vertical_lines = marks[i] if marks else (VerticalLine(length, "training length"),)
        group = str(curves.measurement)
        tick_unit = None if marks else length
        subplots.append(Subplot(title, tuple(lines[i]), group, tuple(vertical_lines), tick_unit))
    shared = "" if titles else shared_measurement(curve_sets)
    return Chart(subplots=tuple(subplots), shared=shared, **options)


def curve_lines(
    curves: CurveSet, styles: Styles, transform: Callable[[float], float] = float
) -> list[Line]:
    """Return a line for each curve, its values transformed."""
    return [
        Line(c.label, styles[c.label], tuple(dot(p).transformed(transform) for p in c.points))
        for c in curves.curves
    ]


def dot(point: Point) -> Dot:
    return Dot(point.at, point.band, note=f"{point.tokens} tokens scored")


def published_line(label: str, curve: PublishedCurve, styles: Styles) -> Line:
    """Return a published curve in the style of the curve that it belongs to."""
    values = sorted(curve.values.items())
    dots = (Dot(at, Band(value, value, value, 1), note=curve.source) for at, value in values)
    return Line(label, styles[label], tuple(dots), published=True)


def points_csv(curve_sets: Sequence[CurveSet], place: str) -> str:
    """Return the losses of curve sets in nats per token, a line for each point.

    `band` says what low and high are.
    """
    return records_csv(
        [
            {
                **curves.key,
                "encoding": curve.label,
                place: f"{point.at:.6g}",
                "loss": f"{point.mean:.6f}",
                "low": f"{point.band.low:.6f}",
                "high": f"{point.band.high:.6f}",
                "band": point.band.description or None,
                "perplexity": f"{point.perplexity:.6f}",
                "seeds": len(point.seeds),
                "tokens": point.tokens,
            }
            for curves in curve_sets
            for curve in curves.curves
            for point in curve.points
        ]
    )


def dots_csv(
    curve_sets: Sequence[CurveSet], lines: Sequence[Sequence[Line]], label: str, x: str, y: str
) -> str:
    """Return the dots of the lines that are drawn for each curve set, a line for each dot.

    `label`, `x` and `y` name the columns; `band` says what low and high are.
    """
    return records_csv(
        [
            {
                **curves.key,
                label: line.label,
                "published": str(line.published).lower(),
                x: f"{dot.x:.6g}",
                f"{x}_low": f"{dot.x_band.low if dot.x_band else dot.x:.6g}",
                f"{x}_high": f"{dot.x_band.high if dot.x_band else dot.x:.6g}",
                y: f"{dot.y.mean:.6g}",
                "low": f"{dot.y.low:.6g}",
                "high": f"{dot.y.high:.6g}",
                "band": dot.y.description or None,
            }
            for curves, drawn in zip(curve_sets, lines, strict=True)
            for line in drawn
            for dot in line.dots
        ]
    )
