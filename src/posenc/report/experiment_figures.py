"""Figures by RoPE base and by training tokens, which only some experiments vary."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from math import pi
from operator import itemgetter

from posenc.report.chart import Chart, Line, VerticalLine
from posenc.report.curve_set import CurveSet, describe_lengths, select_main_evaluation, spread
from posenc.report.curves import RunPoint, curve_sets, evaluation_key
from posenc.report.encoding_styles import encoding_style, sweep_styles
from posenc.report.experiment import Experiment
from posenc.report.plotted_curves import (
    Styles,
    curve_chart,
    curve_lines,
    plot_point,
    plotted_points_csv,
)
from posenc.report.scale import exp
from posenc.report.table import records_csv

MAX_LINES = 8
"""The maximum number of lines per subplot; the shortest and longest lengths are always shown."""
BASE_CAPTION = (
    f"Lower is better; one line for each of up to {MAX_LINES} evaluation lengths. The dotted lines"
    " labeled “bound” are the smallest bases for this head dimension at which a key similar to the"
    " query is expected to score higher than a random key at every distance up to L or 2L (Men et"
    " al. 2024, arXiv:2405.14591, eq. 9); a smaller base cannot support that length. Below 2 L /"
    " pi, every channel pair rotates by about a quarter of a circle or more in L tokens, and models"
    " extrapolate better (Liu et al. 2023, arXiv:2310.05209)."
)
PROTOCOL = "nonoverlapping"
TOKENS_CAPTION = (
    "Perplexity at the evaluation length divided by the perplexity at the training length L, for"
    " each seed, after different numbers of training tokens in the same runs. Above 1, the model is"
    " worse beyond L. All checkpoints of a run come from one learning-rate schedule."
)


def perplexity_by_base(curve_sets: Sequence[CurveSet], experiment: Experiment) -> Chart | None:
    """Return a chart with a subplot for each training length.

    Returns None unless all RoPE labels have distinct bases and at least two were evaluated.
    """
    bases = _bases_by_label(experiment)
    shown_sets = [
        curves
        for curves in select_main_evaluation(curve_sets)
        if sum(curve.label in bases for curve in curves.curves) > 1
    ]
    models = [run.config["model"] for run in experiment.evaluated if run.label in bases]
    lines = [_base_lines(curves, bases) for curves in shown_sets]
    return curve_chart(
        shown_sets,
        lines,
        vertical_lines=[_base_bounds(models[0], curves.train_length) for curves in shown_sets],
        file_stem="perplexity_by_base",
        title="Perplexity by RoPE base",
        x_title="Base",
        y_title="Perplexity per token",
        caption=BASE_CAPTION,
        csv=plotted_points_csv(shown_sets, lines, "base", "perplexity", label="length"),
        log_y=True,
    )


def _bases_by_label(experiment: Experiment) -> dict[str, float]:
    """Map each RoPE label to its base; empty unless all labels have distinct bases.

    Two labels with the same base differ in other settings.
    """
    bases = {
        run.label: (run.config["encoding"].get("spectrum") or {}).get("base")
        for run in experiment.evaluated
        if run.encoding == "rope"
    }
    numbers = {label: float(base) for label, base in bases.items() if base is not None}
    return numbers if len(set(numbers.values())) == len(bases) else {}


def _base_lines(curves: CurveSet, bases: dict[str, float]) -> tuple[Line, ...]:
    by_base = sorted((bases[c.label], c) for c in curves.curves if c.label in bases)
    evaluated = sorted({point.x for _, curve in by_base for point in curve.points})
    lengths = [int(x) for x in spread(evaluated, MAX_LINES)]
    names = describe_lengths(lengths, curves.train_length)
    styles = sweep_styles(encoding_style("rope"), len(lengths))
    lines = []
    for length, name, style in zip(lengths, names, styles, strict=True):
        pairs = [(base, point) for base, curve in by_base if (point := curve.point_at(length))]
        points = tuple(replace(plot_point(p).transformed(exp), x=base) for base, p in pairs)
        lines.append(Line(f"{length} ({name})", style, points))
    return tuple(lines)


def _base_bounds(model: Mapping[str, int], train_length: int) -> tuple[VerticalLine, ...]:
    """Return lines at the smallest bases that support L and 2L, if any do, and at 2 L / pi."""
    from posenc.encodings.spectra.base_bound import smallest_base  # imports torch

    lines = []
    for row, (name, length) in enumerate((("L", train_length), ("2L", 2 * train_length))):
        with suppress(ValueError):  # no base supports such a long context
            base = smallest_base(model["width"] // model["heads"], length)
            lines.append(VerticalLine(base, f"bound for {name}: {base:,.0f}", dotted=True, row=row))
    base = 2 * train_length / pi
    lines.append(VerticalLine(base, f"2 L / pi: {base:,.0f}", dotted=True, row=2))
    return tuple(lines)


def relative_perplexity_by_tokens(experiment: Experiment, styles: Styles) -> Chart | None:
    """Return a chart with a subplot for each evaluation key, training length and length beyond L.

    Returns None if no intermediate checkpoint was evaluated.
    """
    if all(row.get("at_tokens") is None for run in experiment.runs for row in run.rows):
        return None
    sets = _ratio_curves(experiment)
    lines = [curve_lines(curves, styles, exp) for curves in sets]
    return curve_chart(
        sets,
        lines,
        vertical_lines=[()] * len(sets),
        file_stem="relative_perplexity_by_tokens",
        title="Perplexity relative to its value at the training length, by training tokens",
        x_title="Training tokens",
        y_title="Perplexity relative to L",
        caption=TOKENS_CAPTION,
        csv=_ratios_csv(sets, lines),
        log_y=True,
    )


def _ratio_curves(experiment: Experiment) -> list[CurveSet]:
    """Return curves of log(perplexity / perplexity at L); `window` is the evaluation length."""
    run_points = sorted(_ratios(experiment), key=itemgetter(0))
    sets = [
        replace(curves, window=length)
        for length, group in groupby(run_points, key=itemgetter(0))
        for curves in curve_sets(experiment, [point for _, point in group])
    ]
    return sorted(sets, key=lambda curves: (str(curves.evaluation_key), curves.train_length))


def _ratios(experiment: Experiment) -> Iterator[tuple[int, RunPoint]]:
    """Yield the evaluation length and log(perplexity / perplexity at L) for each row beyond L."""
    for run in experiment.evaluated:
        rows = [row for row in run.comparable_rows if row["protocol"] == PROTOCOL]
        at_train_length = {
            (evaluation_key(row), row.get("at_tokens")): row["loss"]
            for row in rows
            if row["length"] == run.train_length
        }
        for row in rows:
            reference = at_train_length.get((evaluation_key(row), row.get("at_tokens")))
            if row["length"] > run.train_length and reference is not None:
                log_ratio, tokens = row["loss"] - reference, run.training_tokens(row)
                point = RunPoint(run, evaluation_key(row), tokens, log_ratio, row["count"])
                yield row["length"], point


def _ratios_csv(sets: Sequence[CurveSet], lines: Sequence[Sequence[Line]]) -> str:
    return records_csv(
        [
            {
                **curves.key,
                "length": curves.window,
                "encoding": line.label,
                "tokens": f"{point.x:.0f}",
                "relative_perplexity": f"{point.y.mean:.6g}",
                "low": f"{point.y.low:.6g}",
                "high": f"{point.y.high:.6g}",
                "band": point.y.description or None,
                "seeds": point.y.seeds,
            }
            for curves, subplot_lines in zip(sets, lines, strict=True)
            for line in subplot_lines
            for point in line.points
        ]
    )
