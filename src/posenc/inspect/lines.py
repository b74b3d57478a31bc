"""Charts of lines that follow from formulas: no seeds, no bands."""

from collections.abc import Iterable, Sequence

from posenc.report.bands import exact
from posenc.report.charts import Chart, Dot, Frame, Line, Mark
from posenc.report.formats import csv_text
from posenc.report.picture import Picture, of_chart
from posenc.report.style import MARKERS, OKABE_ITO, Style

DASHES = ((), (4, 2), (1, 2))
PER_FRAME = 6  # lines that can still be told apart


def line(label: str, points: Iterable[tuple[float, float]], index: int, *, dashes: int = 0) -> Line:
    """A line through points (x, y); the `index` chooses its colour and marker."""
    style = Style(OKABE_ITO[index % len(OKABE_ITO)], *MARKERS[index % len(MARKERS)], DASHES[dashes])
    return Line(label, style, tuple(Dot(float(x), exact(float(y))) for x, y in points))


def frame(
    heading: str, lines: Sequence[Line], marks: Sequence[Mark] = (), group: str = "one"
) -> Frame:
    """Lines on one pair of axes; frames of a `group` share the range of y."""
    return Frame(heading, tuple(lines), group, tuple(marks))


def chart(
    section: str,
    file: str,
    title: str,
    reading: str,
    axes: tuple[str, str],
    frames: Sequence[Frame],
    *,
    ratio: bool = False,
) -> Picture:
    """A figure of lines; `axes` names x, which is logarithmic, and y; `ratio` lets y be so too."""
    points = [
        [frame.heading.replace("\n", ", "), line.label, f"{dot.at:.6g}", f"{dot.band.mean:.8g}"]
        for frame in frames
        for line in frame.lines
        for dot in line.dots
    ]
    csv = csv_text([["panel", "line", *axes], *points])
    return of_chart(section, Chart(file, title, *axes, tuple(frames), ratio, reading, csv))
