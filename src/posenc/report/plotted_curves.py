"""Curves as the lines of a chart, and the points of both as csv."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc.report.chart import Chart, Dot, Line, Subplot, VerticalLine
from posenc.report.confidence import Band
from posenc.report.curves import CurveSet, Point
from posenc.report.encoding_styles import Style
from posenc.report.published_curves import PublishedCurve
from posenc.report.result_tables import CURVE_SET_KEYS, curve_set_values
from posenc.report.table import csv_text

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
    names = (place, "loss", "low", "high", "band", "perplexity", "seeds", "tokens")
    lines: list[Sequence[object]] = [(*CURVE_SET_KEYS, "encoding", *names)]
    for curves in curve_sets:
        for curve in curves.curves:
            for p in curve.points:
                loss = (f"{x:.6f}" for x in (p.mean, p.band.low, p.band.high))
                rest = (p.band.description or None, f"{p.perplexity:.6f}", len(p.seeds), p.tokens)
                lines.append((*curve_set_values(curves), curve.label, f"{p.at:.6g}", *loss, *rest))
    return csv_text(lines)


def dots_csv(
    curve_sets: Sequence[CurveSet], lines: Sequence[Sequence[Line]], line: str, x: str, y: str
) -> str:
    """Return the dots of the lines that are drawn for each curve set, a line for each dot.

    `line`, `x` and `y` name the columns; `band` says what low and high are.
    """
    names = (line, "published", x, f"{x}_low", f"{x}_high", y, "low", "high", "band")
    rows: list[Sequence[object]] = [(*CURVE_SET_KEYS, *names)]
    for curves, drawn in zip(curve_sets, lines, strict=True):
        for each in drawn:
            key = (*curve_set_values(curves), each.label, str(each.published).lower())
            for d in each.dots:
                ends = (d.x_band.low, d.x_band.high) if d.x_band else (d.x, d.x)
                numbers = (f"{n:.6g}" for n in (d.x, *ends, d.y.mean, d.y.low, d.y.high))
                rows.append((*key, *numbers, d.y.description or None))
    return csv_text(rows)
