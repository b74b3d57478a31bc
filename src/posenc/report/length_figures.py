"""Figures by evaluation length: perplexity, perplexity relative to L, and task accuracy."""

from collections.abc import Sequence
from dataclasses import replace

from posenc.report.chart import Chart, Line, PlotPoint
from posenc.report.confidence import band, zero_width_band
from posenc.report.curve_set import CurveSet
from posenc.report.encoding_styles import REFERENCE_STYLE
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    curve_lines,
    losses_csv,
    plotted_points_csv,
    published_line,
)
from posenc.report.scale import exp

X_TITLE = "Evaluation length (tokens)"
PERPLEXITY_CAPTION = (
    "Perplexity is the exponential of the mean loss over seeds. Lower is better. To the right of"
    " the dashed line, windows are longer than in training: an increasing line means that the"
    " encoding does not extrapolate; a flat or decreasing one may be due to fewer early tokens."
)
RELATIVE_CAPTION = (
    "Perplexity at each length divided by the perplexity at the training length L, averaged over"
    " seeds (geometric mean). Values below 1 are better than at L, values above 1 are worse."
)
PUBLISHED_CAPTION = (
    " Dashed lines with hollow markers are published curves of other models, often on other data"
    " ({}), each divided by its value at L. Only the shapes are comparable."
)
ACCURACY_CAPTION = (
    "Higher is better: the fraction of answer tokens that the model predicts (top-1), given the"
    " correct preceding answer tokens. Chance is the accuracy of guessing among all symbols that"
    " can be the answer. To the right of the dashed line, sequences are longer than in training."
)


def perplexity_by_length(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return perplexity by length, with one subplot for each evaluation key and training length.

    Confidence intervals are computed on losses.
    """
    return curve_chart(
        curve_sets,
        [[*curve_lines(curves, styles, exp), *_ngram_line(curves)] for curves in curve_sets],
        file_stem="perplexity_by_length",
        title="Perplexity by evaluation length",
        x_title=X_TITLE,
        y_title="Perplexity per token",
        caption=PERPLEXITY_CAPTION,
        csv=losses_csv(curve_sets, "length"),
        log_y=True,
    )


def relative_perplexity(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return perplexity relative to its value at L, with published curves overlaid.

    Perplexities on different corpora or with different tokenizers are not comparable, but their
    change with length is. Returns None if no encoding was evaluated at L and at another length.
    """
    candidates = [(c, _relative_lines(c, styles)) for c in curve_sets if len(c.x_values) > 1]
    measured = [(curves, lines) for curves, lines in candidates if lines]
    shown = [curves for curves, _ in measured]
    lines = [[*lines, *_relative_published_lines(c, styles)] for c, lines in measured]
    published = (line for subplot_lines in lines for line in subplot_lines if line.published)
    sources = "; ".join(dict.fromkeys(line.points[0].note for line in published))
    return curve_chart(
        shown,
        lines,
        file_stem="perplexity_relative",
        title="Perplexity relative to its value at the training length",
        x_title=X_TITLE,
        y_title="Perplexity relative to L",
        caption=RELATIVE_CAPTION + (PUBLISHED_CAPTION.format(sources) if sources else ""),
        csv=plotted_points_csv(shown, lines, "length", "relative_perplexity"),
        log_y=True,
    )


def accuracy_by_length(curve_sets: Sequence[CurveSet], styles: Styles) -> Chart | None:
    """Return accuracy by length, with a subplot for each task and training length.

    Published accuracies are overlaid.
    """
    lines = [
        [
            *curve_lines(curves, styles, lambda value: min(1.0, max(0.0, value))),
            *(published_line(*pair, styles) for pair in curves.published_in("accuracy").items()),
        ]
        for curves in curve_sets
    ]
    return curve_chart(
        curve_sets,
        [[*shown, *_chance_line(c)] for c, shown in zip(curve_sets, lines, strict=True)],
        titles=[
            f"{curves.evaluation_key.data_name}, trained at {curves.setting}"
            for curves in curve_sets
        ],
        file_stem="accuracy_by_length",
        title="Accuracy by evaluation length",
        x_title=X_TITLE,
        y_title="Accuracy",
        caption=ACCURACY_CAPTION,
        csv=plotted_points_csv(curve_sets, lines, "length", "accuracy"),
        y_bounds=(0.0, 1.0),
    )


def _ngram_line(curves: CurveSet) -> list[Line]:
    """Return a horizontal line for the best n-gram model, if there is one."""
    if curves.best_ngram is None:
        return []
    order, perplexity = curves.best_ngram
    return [_horizontal_line(f"{order}-gram model", perplexity, curves, "Kneser-Ney")]


def _chance_line(curves: CurveSet) -> list[Line]:
    """Return a horizontal line at the chance accuracy, if it is known."""
    if curves.chance is None:
        return []
    note = "guessing among all symbols that can be the answer"
    return [_horizontal_line(f"chance ({curves.chance:.3g})", curves.chance, curves, note)]


def _horizontal_line(label: str, y: float, curves: CurveSet, note: str) -> Line:
    """Return a line from the first to the last x of a curve set."""
    ends = dict.fromkeys((curves.x_values[0], curves.x_values[-1]))
    points = tuple(PlotPoint(x, zero_width_band(y), note) for x in ends)
    return Line(label, REFERENCE_STYLE, points)


def _relative_lines(curves: CurveSet, styles: Styles) -> list[Line]:
    """Return a line of ratios, paired by seed, for each curve with a point at L."""
    lines = []
    for curve in curves.curves:
        if (reference := curve.point_at(curves.train_length)) is None:
            continue
        points = tuple(
            PlotPoint(point.x, band(changes)).transformed(exp)
            for point in curve.points
            if (changes := point.differences(reference))
        )
        lines.append(Line(curve.label, styles[curve.label], points))
    return lines


def _relative_published_lines(curves: CurveSet, styles: Styles) -> list[Line]:
    """Return the published curves that have a value at the training length, divided by it."""
    length, lines = curves.train_length, []
    for label, curve in curves.published_in("perplexity", "loss").items():
        if length in curve.values:
            is_loss = curve.unit == "loss"
            values = {n: exp(value) if is_loss else value for n, value in curve.values.items()}
            relative = {n: value / values[length] for n, value in values.items()}
            lines.append(published_line(label, replace(curve, values=relative), styles))
    return lines
