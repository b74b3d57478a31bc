"""Perplexity by RoPE's base, with the smallest base of Men et al. (2024) for L and 2L."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

import numpy as np

from posenc.report.chart import Chart, Line, VerticalLine
from posenc.report.curves import CurveSet, describe_lengths
from posenc.report.encoding_styles import style_at, sweep_styles
from posenc.report.experiment import Experiment, Run
from posenc.report.plotted_curves import curve_chart, dot, dots_csv, first_measurement

MAX_LINES = 8
"""Of a subplot, the shortest and the longest length included."""
READING = (
    "Lower is better; one line for each evaluation length. Dotted: the smallest base at which a"
    " rotary key equal to the query is favoured at every distance up to L, and up to 2L, for this"
    " head width (Men et al. 2024, 2405.14591, eq. 9). By their bound a smaller base cannot support"
    " that length."
)


def perplexity_by_base(curve_sets: Sequence[CurveSet], experiment: Experiment) -> Chart | None:
    """Return a subplot for each training length; None unless RoPE runs differ in base alone."""
    bases = _bases(experiment)
    shown = [
        c for c in first_measurement(curve_sets) if sum(x.label in bases for x in c.curves) > 1
    ]
    if not shown:
        return None
    width = _head_width(experiment, bases)
    lines = [_lines(curves, bases) for curves in shown]
    return curve_chart(
        shown,
        lines,
        marks=[_bounds(width, curves.train_length) for curves in shown],
        file="perplexity_by_base",
        title="Perplexity by RoPE's base",
        x_title="Base",
        y_title="Perplexity per token",
        reading=READING,
        csv=dots_csv(shown, lines, "length", "base", "perplexity"),
        ratio=True,
    )


def _bases(experiment: Experiment) -> dict[str, float]:
    """Return the base of each label of RoPE; empty where labels differ in another setting."""
    bases = {run.label: _base(run) for run in experiment.evaluated if run.encoding == "rope"}
    known = {label: float(base) for label, base in bases.items() if base is not None}
    return known if len(set(known.values())) == len(bases) else {}


def _base(run: Run) -> float | None:
    return (run.config["encoding"].get("spectrum") or {}).get("base")


def _head_width(experiment: Experiment, bases: dict[str, float]) -> int:
    model = next(run for run in experiment.evaluated if run.label in bases).config["model"]
    return model["width"] // model["heads"]


def _lines(curves: CurveSet, bases: dict[str, float]) -> tuple[Line, ...]:
    by_base = sorted((bases[c.label], c) for c in curves.curves if c.label in bases)
    places = np.linspace(0, len(curves.places) - 1, min(MAX_LINES, len(curves.places)))
    lengths = [int(curves.places[round(i)]) for i in places]
    names = describe_lengths(lengths, curves.train_length)
    styles = sweep_styles(style_at(0), len(lengths))
    lines = []
    for length, name, style in zip(lengths, names, styles, strict=True):
        points = [(base, point) for base, curve in by_base if (point := curve.at(length))]
        dots = tuple(replace(dot(point).transformed(exp), x=base) for base, point in points)
        lines.append(Line(f"{length} ({name})", style, dots))
    return tuple(lines)


def _bounds(head_width: int, train_length: int) -> tuple[VerticalLine, ...]:
    """Return the smallest bases for L and for 2L, where a base supports that length at all."""
    from posenc.encodings.spectra.base_bound import smallest_base  # imports torch

    lines = []
    for row, (name, length) in enumerate((("L", train_length), ("2L", 2 * train_length))):
        try:
            base = smallest_base(head_width, length)
        except ValueError:  # no base supports so long a context
            continue
        lines.append(VerticalLine(base, f"bound for {name}: {base:,.0f}", dotted=True, row=row))
    return tuple(lines)
