"""Perplexity relative to its value at the training length, with the published curves over it.

Perplexities of other corpora and tokenizers cannot be compared; how they change with length can.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

from posenc.claims.published import Published
from posenc.report.bands import band
from posenc.report.charts import Chart, Dot, Line
from posenc.report.collect import Experiment
from posenc.report.curves import Panel, Series
from posenc.report.formats import dots_csv
from posenc.report.kinds.frames import Looks, frame_of, published_line, same, shared_text
from posenc.report.published import overlays

READING = (
    "Perplexity at each length over that at the training length L, seed by seed: 1 is as good as at"
    " L, below 1 better."
)
PUBLISHED = (
    " Dashed and hollow: what was published, of other models on other data, over its own value at L"
    " ({}). Only the shapes can be compared."
)


def relative(panels: Sequence[Panel], looks: Looks, experiment: Experiment) -> Chart | None:
    """A frame for each panel that was measured at L and elsewhere; None where none was."""
    shown = [panel for panel in panels if len(panel.places) > 1 and _lines(panel, looks)]
    if not shown:
        return None
    published = [_at_train_length(overlays(p, experiment, ("perplexity", "loss"))) for p in shown]
    frames = tuple(
        frame_of(panel, shown, [*_lines(panel, looks), *_published(curves, looks)])
        for panel, curves in zip(shown, published, strict=True)
    )
    sources = dict.fromkeys(curve.source for curves in published for curve in curves.values())
    return Chart(
        file="perplexity_relative",
        title="Perplexity relative to its value at the training length",
        x_name="Evaluation length (tokens)",
        y_name="Perplexity over that at L",
        frames=frames,
        ratio=True,
        reading=READING + (PUBLISHED.format("; ".join(sources)) if sources else ""),
        csv=dots_csv(shown, frames, "encoding", "length", "relative_perplexity"),
        shared=shared_text(shown),
    )


def _lines(panel: Panel, looks: Looks) -> list[Line]:
    """Solid lines, so that dashes can say what is published; markers tell encodings apart."""
    found = [(series, _dots(series, panel.train_length)) for series in panel.series]
    return [
        Line(series.label, replace(looks[series.label], dashes=()), dots)
        for series, dots in found
        if dots
    ]


def _dots(series: Series, train_length: int) -> tuple[Dot, ...]:
    """Ratios paired by seed; none for a series that was not measured at the training length."""
    if (near := series.at(train_length)) is None:
        return ()
    at_length = dict(zip(near.seeds, near.values, strict=True))
    dots = []
    for point in series.points:
        pairs = zip(point.seeds, point.values, strict=True)
        rises = [loss - at_length[seed] for seed, loss in pairs if seed in at_length]
        if rises:
            dots.append(Dot(point.at, band(rises)).shown(exp))
    return tuple(dots)


def _at_train_length(curves: dict[str, Published]) -> dict[str, Published]:
    return {label: curve for label, curve in curves.items() if curve.train_length in curve.values}


def _published(curves: dict[str, Published], looks: Looks) -> list[Line]:
    lines = []
    for label, curve in curves.items():
        scale = same if curve.unit == "loss" else log
        near = scale(curve.values[curve.train_length])
        lines.append(published_line(label, curve, looks, lambda v, s=scale, n=near: exp(s(v) - n)))
    return lines
