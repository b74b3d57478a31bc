"""Figures over evaluation length: perplexity, perplexity relative to L, accuracy of tasks."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from posenc.report.chart import Chart, Dot, Line
from posenc.report.confidence import band
from posenc.report.curves import Curve, CurveSet
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    curve_lines,
    dots_csv,
    points_csv,
    published_line,
)

X_TITLE = "Evaluation length (tokens)"
PERPLEXITY = (
    "Perplexity is the exponential of the loss averaged over seeds. Lower is better. Right of the"
    " dashed line windows are longer than any in training: a flat or falling line extrapolates, a"
    " rising one does not."
)
RELATIVE = (
    "Perplexity at each length divided by that at the training length L, for each seed: 1 is as"
    " good as at L, below 1 is better."
)
RELATIVE_PUBLISHED = (
    " Dashed with hollow markers: published values of other models on other data, divided by their"
    " own value at L ({}). Only the shapes are comparable."
)
ACCURACY = (
    "Higher is better: the fraction of answers that the model ranks first, each given the answers"
    " before it. Right of the dashed line sequences are longer than any in training."
)


def perplexity_by_length(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return the extrapolation curves, a subplot for each measurement and training length.

    Intervals are taken over losses.
    """
    if not curve_sets:
        return None
    return curve_chart(
        curve_sets,
        [curve_lines(curves, styles, exp) for curves in curve_sets],
        file="perplexity_by_length",
        title="Perplexity by evaluation length",
        x_title=X_TITLE,
        y_title="Perplexity per token",
        reading=PERPLEXITY,
        csv=points_csv(curve_sets, "length"),
        ratio=True,
    )


def relative_perplexity(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return perplexity relative to its value at L, with published curves over it.

    Perplexities of different corpora and tokenizers are not comparable, but how they change with
    length is. None where no encoding was evaluated both at L and elsewhere.
    """
    measured = [(c, _relative_lines(c, styles)) for c in curve_sets if len(c.places) > 1]
    measured = [(curves, lines) for curves, lines in measured if lines]
    if not measured:
        return None
    shown = [curves for curves, _ in measured]
    lines = [[*lines, *_relative_published_lines(c, styles)] for c, lines in measured]
    published = (line for drawn in lines for line in drawn if line.published)
    sources = "; ".join(dict.fromkeys(line.dots[0].note for line in published))
    return curve_chart(
        shown,
        lines,
        file="perplexity_relative",
        title="Perplexity relative to its value at the training length",
        x_title=X_TITLE,
        y_title="Perplexity relative to L",
        reading=RELATIVE + (RELATIVE_PUBLISHED.format(sources) if sources else ""),
        csv=dots_csv(shown, lines, "encoding", "length", "relative_perplexity"),
        ratio=True,
    )


def accuracy_by_length(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return a subplot for each task and training length, published accuracies over it."""
    if not curve_sets:
        return None
    lines = [
        [
            *curve_lines(curves, styles, lambda value: min(1.0, max(0.0, value))),
            *(published_line(*pair, styles) for pair in curves.published_in("accuracy").items()),
        ]
        for curves in curve_sets
    ]
    return curve_chart(
        curve_sets,
        lines,
        titles=[
            f"{curves.measurement.data_name}, trained at L = {curves.train_length}"
            for curves in curve_sets
        ],
        file="accuracy_by_length",
        title="Accuracy by evaluation length",
        x_title=X_TITLE,
        y_title="Accuracy",
        reading=ACCURACY,
        csv=dots_csv(curve_sets, lines, "encoding", "length", "accuracy"),
        bounds=(0.0, 1.0),
    )


def _relative_lines(curves: CurveSet, styles: Styles) -> list[Line]:
    dots = {curve.label: _relative_dots(curve, curves.train_length) for curve in curves.curves}
    return [Line(label, styles[label], points) for label, points in dots.items() if points]


def _relative_dots(curve: Curve, train_length: int) -> tuple[Dot, ...]:
    """Return ratios paired by seed; none for a curve that has no point at the training length."""
    if (near := curve.at(train_length)) is None:
        return ()
    at_length = dict(zip(near.seeds, near.values, strict=True))
    dots = []
    for point in curve.points:
        pairs = zip(point.seeds, point.values, strict=True)
        changes = [loss - at_length[seed] for seed, loss in pairs if seed in at_length]
        if changes:
            dots.append(Dot(point.at, band(changes)).transformed(exp))
    return tuple(dots)


def _relative_published_lines(curves: CurveSet, styles: Styles) -> list[Line]:
    """Return published losses and perplexities that have a value at the training length."""
    length, lines = curves.train_length, []
    for label, curve in curves.published_in("perplexity", "loss").items():
        if length in curve.values:
            loss = curve.unit == "loss"
            values = {n: exp(value) if loss else value for n, value in curve.values.items()}
            relative = {n: value / values[length] for n, value in values.items()}
            lines.append(published_line(label, replace(curve, values=relative), styles))
    return lines
