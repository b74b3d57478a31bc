"""Charts of lines that follow from formulas: no seeds, no bands."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from posenc.report.chart import Chart, Dot, Line, Subplot, VerticalLine
from posenc.report.confidence import exact
from posenc.report.encoding_styles import COLOURS, style_at
from posenc.report.line_plot import line_figure
from posenc.report.table import csv_text
from posenc.report.vega_figure import Figure

DASHES = ((), (4, 2), (1, 2))
PER_FRAME = 6  # lines that can still be told apart


def line(label: str, points: Iterable[tuple[float, float]], index: int, *, dashes: int = 0) -> Line:
    """A line through points (x, y); the `index` chooses its colour and marker."""
    style = replace(style_at(index % len(COLOURS)), dash=DASHES[dashes])
    return Line(label, style, tuple(Dot(float(x), exact(float(y))) for x, y in points))


def frame(
    heading: str, lines: Sequence[Line], marks: Sequence[VerticalLine] = (), group: str = "one"
) -> Subplot:
    """Lines on one pair of axes; frames of a `group` share the range of y."""
    return Subplot(heading, tuple(lines), group, tuple(marks))


def chart(
    section: str,
    file: str,
    title: str,
    reading: str,
    axes: tuple[str, str],
    frames: Sequence[Subplot],
    *,
    ratio: bool = False,
) -> Figure:
    """A figure of lines; `axes` names x, which is logarithmic, and y; `ratio` lets y be so too."""
    points = [
        [frame.title.replace("\n", ", "), line.label, f"{dot.x:.6g}", f"{dot.y.mean:.8g}"]
        for frame in frames
        for line in frame.lines
        for dot in line.dots
    ]
    csv = csv_text([["panel", "line", *axes], *points])
    return line_figure(section, Chart(file, title, *axes, tuple(frames), reading, csv, ratio=ratio))
