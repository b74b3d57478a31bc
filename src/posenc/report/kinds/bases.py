"""Perplexity against RoPE's base, with the smallest base of Men et al. (2024) for L and 2L."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from posenc.report.charts import Chart, Frame, Line, Mark
from posenc.report.collect import Experiment, Run
from posenc.report.curves import Panel
from posenc.report.formats import dots_csv
from posenc.report.kinds.frames import dot_of, first_alike, heading, shared_text
from posenc.report.style import MARKERS, Style, shades
from posenc.report.tables import spans

MOST_LINES = 8
READING = (
    "Lower is better; a line for each evaluation length. Dotted: the smallest base at which a"
    " rotary key like the query is favoured at every distance up to L and up to 2L, for this width"
    " of a head (Men et al. 2024, 2405.14591, eq. 9). By their bound a smaller base cannot serve"
    " that length."
)


def bases(panels: Sequence[Panel], experiment: Experiment) -> Chart | None:
    """A frame for each training length; None unless RoPE runs differ in their base alone."""
    by_label = _bases(experiment)
    shown = [p for p in first_alike(panels) if sum(s.label in by_label for s in p.series) > 1]
    if not shown:
        return None
    width = _head_width(experiment, by_label)
    frames = tuple(
        Frame(
            heading(panel, shown),
            _lines(panel, by_label),
            str(panel.measurement),
            _bounds(width, panel.train_length),
        )
        for panel in shown
    )
    return Chart(
        file="perplexity_by_base",
        title="Perplexity by RoPE's base",
        x_name="Base",
        y_name="Perplexity per token",
        frames=frames,
        ratio=True,
        reading=READING,
        csv=dots_csv(shown, frames, "length", "base", "perplexity"),
        shared=shared_text(shown),
    )


def _bases(experiment: Experiment) -> dict[str, float]:
    """The base of each label of RoPE; empty where something else tells two labels apart."""
    found = {run.label: _base(run) for run in experiment.measured if run.encoding == "rope"}
    known = {label: float(base) for label, base in found.items() if base is not None}
    return known if len(set(known.values())) == len(found) else {}


def _base(run: Run) -> float | None:
    return (run.config["encoding"].get("spectrum") or {}).get("base")


def _head_width(experiment: Experiment, by_label: dict[str, float]) -> int:
    model = next(run for run in experiment.measured if run.label in by_label).config["model"]
    return model["width"] // model["heads"]


def _lines(panel: Panel, by_label: dict[str, float]) -> tuple[Line, ...]:
    series = sorted((by_label[s.label], s) for s in panel.series if s.label in by_label)
    lengths = _some([int(at) for at in panel.places])
    names = spans(tuple(lengths), panel.train_length)
    lines = []
    for i, (at, span, colour) in enumerate(zip(lengths, names, shades(len(lengths)), strict=True)):
        style = Style(colour, *MARKERS[i % len(MARKERS)], ())
        points = [(base, point) for base, of in series if (point := of.at(at))]
        dots = tuple(replace(dot_of(point).shown(exp), at=base) for base, point in points)
        lines.append(Line(f"{at} ({span})", style, dots))
    return tuple(lines)


def _some(lengths: list[int]) -> list[int]:
    """At most MOST_LINES of them, the first and the last included."""
    if len(lengths) <= MOST_LINES:
        return lengths
    step = (len(lengths) - 1) / (MOST_LINES - 1)
    return [lengths[round(i * step)] for i in range(MOST_LINES)]


def _bounds(head_width: int, train_length: int) -> tuple[Mark, ...]:
    """The smallest bases for L and for 2L, as far as there are any."""
    from posenc.encodings.spectra.base_bound import smallest_base  # brings torch

    marks = []
    for drop, (name, length) in enumerate((("L", train_length), ("2L", 2 * train_length))):
        try:
            base = smallest_base(head_width, length)
        except ValueError:  # no base serves so long a context
            continue
        marks.append(Mark(base, f"bound for {name}: {base:,.0f}", dotted=True, drop=drop))
    return tuple(marks)
