"""Curves as the lines of a chart, published curves over them, and the points of both as csv."""

from collections.abc import Callable, Container, Mapping, Sequence

from posenc.report.chart import Dot, Line, Subplot, VerticalLine
from posenc.report.confidence import Band
from posenc.report.curve_data import CurveSet, Measurement, Point
from posenc.report.encoding_styles import Style
from posenc.report.experiment import Experiment
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


def token_subplot(
    curves: CurveSet, curve_sets: Sequence[CurveSet], lines: Sequence[Line]
) -> Subplot:
    """Return a subplot over tokens with the training length marked."""
    mark = VerticalLine(curves.train_length, "training length")
    title, group = subplot_title(curves, curve_sets), str(curves.measurement)
    return Subplot(title, tuple(lines), group, (mark,), curves.train_length)


def curve_lines(
    curves: CurveSet, styles: Styles, transform: Callable[[float], float]
) -> list[Line]:
    """Return a line for each curve, its values on another scale."""
    return [
        Line(c.label, styles[c.label], tuple(dot(p).transformed(transform) for p in c.points))
        for c in curves.curves
    ]


def dot(point: Point) -> Dot:
    return Dot(point.at, point.band, note=f"{point.count} tokens scored")


def published_line(
    label: str, curve: PublishedCurve, styles: Styles, transform: Callable[[float], float]
) -> Line:
    """Return a published curve in the style of the curve that it belongs to."""
    values = [(at, transform(value)) for at, value in sorted(curve.values.items())]
    dots = (Dot(at, Band(value, value, value, 1), note=curve.source) for at, value in values)
    return Line(label, styles[label], tuple(dots), published=True)


def identity(value: float) -> float:
    return value


def published_curves(
    curves: CurveSet, experiment: Experiment, units: Container[str]
) -> dict[str, PublishedCurve]:
    """Return the published curves in one of some units for the curves of a set, by label."""
    labels = {curve.label for curve in curves.curves}
    found: dict[str, PublishedCurve] = {}
    for published in experiment.published:
        if published.unit not in units or published.train_length != curves.train_length:
            continue
        if _is_measured(published, curves.measurement):
            found |= {
                run.label: published for run in experiment.runs if run.matches(published.selector)
            }
    return {label: published for label, published in found.items() if label in labels}


def published_rows(curves: CurveSet, experiment: Experiment) -> dict[str, PublishedCurve]:
    """Return the published perplexities that share a length with the curves of a set, by label."""
    published, lengths = published_curves(curves, experiment, ("perplexity",)), set(curves.places)
    return {label: curve for label, curve in published.items() if lengths & set(curve.values)}


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
                rest = (p.band.description or None, f"{p.perplexity:.6f}", len(p.seeds), p.count)
                lines.append((*curve_set_values(curves), curve.label, f"{p.at:.6g}", *loss, *rest))
    return csv_text(lines)


def dots_csv(
    curve_sets: Sequence[CurveSet], subplots: Sequence[Subplot], line: str, x: str, y: str
) -> str:
    """Return the dots of a chart with a subplot for each curve set, a line for each dot.

    `line`, `x` and `y` name the columns; `band` says what low and high are.
    """
    names = (line, "published", x, f"{x}_low", f"{x}_high", y, "low", "high", "band")
    lines: list[Sequence[object]] = [(*CURVE_SET_KEYS, *names)]
    for curves, subplot in zip(curve_sets, subplots, strict=True):
        for each in subplot.lines:
            key = (*curve_set_values(curves), each.label, str(each.published).lower())
            lines += [(*key, *_dot_values(dot)) for dot in each.dots]
    return csv_text(lines)


def _dot_values(dot: Dot) -> list[object]:
    ends = (dot.x_band.low, dot.x_band.high) if dot.x_band else (dot.x, dot.x)
    numbers = (dot.x, *ends, dot.y.mean, dot.y.low, dot.y.high)
    return [*(f"{number:.6g}" for number in numbers), dot.y.description or None]


def _is_measured(published: PublishedCurve, measurement: Measurement) -> bool:
    """Whether a curve has the measurement's protocol, and its split and corpus if it names any."""
    values = {**vars(measurement), "corpus": measurement.data_name}
    return all(values[key] == value for key, value in published.row_keys.items())
