"""Figures over evaluation length: perplexity, perplexity relative to L, accuracy of tasks."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from posenc.report.chart import Chart, Dot, Line
from posenc.report.confidence import Band, band
from posenc.report.curve_data import Curve, CurveSet
from posenc.report.experiment import Experiment
from posenc.report.plotted_curves import (
    Styles,
    curve_lines,
    dots_csv,
    identity,
    points_csv,
    published_curves,
    published_line,
    shared_measurement,
    token_subplot,
)
from posenc.report.published_curves import PublishedCurve

X_TITLE = "Evaluation length (tokens)"
PERPLEXITY = (
    "Lower is better. Right of the dashed line windows are longer than any in training: a flat or"
    " falling line extrapolates, a rising one does not."
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
    lines = [curve_lines(curves, styles, exp) for curves in curve_sets]
    pairs = zip(curve_sets, lines, strict=True)
    return Chart(
        file="perplexity_by_length",
        title="Perplexity by evaluation length",
        x_title=X_TITLE,
        y_title="Perplexity per token",
        subplots=tuple(token_subplot(curves, curve_sets, each) for curves, each in pairs),
        reading=PERPLEXITY,
        csv=points_csv(curve_sets, "length"),
        ratio=True,
        shared=shared_measurement(curve_sets),
    )


def relative_perplexity(
    curve_sets: Sequence[CurveSet], styles: Styles, experiment: Experiment
) -> Chart | None:
    """Return perplexity relative to its value at L, with published curves over it.

    Perplexities of different corpora and tokenizers are not comparable, but how they change with
    length is. None where no encoding was evaluated both at L and elsewhere.
    """
    shown = [c for c in curve_sets if len(c.places) > 1 and _relative_lines(c, styles)]
    if not shown:
        return None
    units = ("perplexity", "loss")
    published = [_with_train_length(published_curves(c, experiment, units)) for c in shown]
    subplots = tuple(
        token_subplot(c, shown, [*_relative_lines(c, styles), *_published_lines(curves, styles)])
        for c, curves in zip(shown, published, strict=True)
    )
    sources = dict.fromkeys(curve.source for curves in published for curve in curves.values())
    return Chart(
        file="perplexity_relative",
        title="Perplexity relative to its value at the training length",
        x_title=X_TITLE,
        y_title="Perplexity relative to L",
        subplots=subplots,
        reading=RELATIVE + (RELATIVE_PUBLISHED.format("; ".join(sources)) if sources else ""),
        csv=dots_csv(shown, subplots, "encoding", "length", "relative_perplexity"),
        ratio=True,
        shared=shared_measurement(shown),
    )


def accuracy_by_length(
    curve_sets: Sequence[CurveSet], styles: Styles, experiment: Experiment
) -> Chart | None:
    """Return a subplot for each task and training length, published accuracies over it."""
    if not curve_sets:
        return None
    subplots = []
    for curves in curve_sets:
        published = published_curves(curves, experiment, ("accuracy",)).items()
        over = [published_line(label, curve, styles, identity) for label, curve in published]
        lines = [_bounded(line) for line in curve_lines(curves, styles, identity)]
        title = f"{curves.measurement.data_name}, trained at L = {curves.train_length}"
        subplot = token_subplot(curves, curve_sets, [*lines, *over])
        subplots.append(replace(subplot, title=title, y_group="accuracy"))
    return Chart(
        file="accuracy_by_length",
        title="Accuracy by evaluation length",
        x_title=X_TITLE,
        y_title="Accuracy",
        subplots=tuple(subplots),
        reading=ACCURACY,
        csv=dots_csv(curve_sets, subplots, "encoding", "length", "accuracy"),
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


def _with_train_length(curves: dict[str, PublishedCurve]) -> dict[str, PublishedCurve]:
    return {label: curve for label, curve in curves.items() if curve.train_length in curve.values}


def _published_lines(curves: dict[str, PublishedCurve], styles: Styles) -> list[Line]:
    lines = []
    for label, curve in curves.items():
        to_loss = identity if curve.unit == "loss" else log
        near = to_loss(curve.values[curve.train_length])
        lines.append(
            published_line(
                label, curve, styles, lambda value, f=to_loss, near=near: exp(f(value) - near)
            )
        )
    return lines


def _bounded(line: Line) -> Line:
    """Return the line with its bands cut at 0 and 1."""
    dots = []
    for dot in line.dots:
        ends = (max(0.0, dot.y.low), min(1.0, dot.y.high))
        dots.append(replace(dot, y=Band(dot.y.mean, *ends, dot.y.seeds)))
    return replace(line, dots=tuple(dots))
