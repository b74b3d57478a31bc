"""What the figures over lengths and positions have in common."""

from collections.abc import Callable, Sequence

from posenc.claims.published import Published
from posenc.report.bands import Band
from posenc.report.charts import Dot, Frame, Line, Mark
from posenc.report.curves import Panel, Point
from posenc.report.style import Style

Looks = dict[str, Style]


def shared_text(panels: Sequence[Panel]) -> str:
    """The measurement, if all panels are of one."""
    measurements = {str(panel.measurement) for panel in panels}
    return measurements.pop() if len(measurements) == 1 else ""


def heading(panel: Panel, panels: Sequence[Panel]) -> str:
    """What a panel is of, as far as it is not what all of them are of."""
    text = f"trained at L = {panel.train_length}"
    text += f", read in windows of {panel.window}" if panel.window else ""
    return text if shared_text(panels) else f"{text}\n{panel.measurement}"


def frame_of(panel: Panel, panels: Sequence[Panel], lines: Sequence[Line]) -> Frame:
    """A frame over tokens, with the training length marked."""
    mark = Mark(panel.train_length, "training length")
    group = str(panel.measurement)
    return Frame(heading(panel, panels), tuple(lines), group, (mark,), panel.train_length)


def lines_of(panel: Panel, looks: Looks, show: Callable[[float], float]) -> list[Line]:
    """A line for each series, its values on another scale."""
    return [
        Line(s.label, looks[s.label], tuple(dot_of(p).shown(show) for p in s.points))
        for s in panel.series
    ]


def dot_of(point: Point) -> Dot:
    return Dot(point.at, point.band, note=f"{point.count} tokens scored")


def published_line(
    label: str, curve: Published, looks: Looks, show: Callable[[float], float]
) -> Line:
    """A published curve in the colour of the series that it stands beside."""
    values = [(at, show(value)) for at, value in sorted(curve.values.items())]
    dots = (Dot(at, Band(value, value, value, 1), note=curve.source) for at, value in values)
    return Line(label, looks[label], tuple(dots), published=True)


def same(value: float) -> float:
    return value


def first_alike(panels: Sequence[Panel]) -> list[Panel]:
    """The panels of the first measurement: of the data that the runs were trained on."""
    return [panel for panel in panels if panel.measurement == panels[0].measurement]
