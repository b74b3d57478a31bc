"""Panels of a run's figures: rows as lines, one for each head."""

from collections.abc import Callable, Sequence

from posenc.inspect.run.tables import Row
from posenc.report.bands import exact
from posenc.report.charts import Dot, Frame, Line, Mark
from posenc.report.formats import csv_text
from posenc.report.style import DASHES, MARKERS, Style, shades

Value = Callable[[Row], float]


def frame(
    heading: str, rows: Sequence[Row], point: tuple[Value, Value], group: str, train_length: int
) -> Frame:
    """A line for each head, through the `point` (x, y) of each row."""
    x, y = point
    heads = list(dict.fromkeys(row["head"] for row in rows))
    lines = []
    for n, head in enumerate(heads):
        of_head = [row for row in rows if row["head"] == head]
        dots = tuple(Dot(x(row), exact(y(row))) for row in of_head)
        lines.append(Line(f"head {head}", style(n, len(heads)), dots))
    return Frame(heading, tuple(lines), group, (Mark(train_length, "L"),))


def middle(row: Row) -> float:
    """The middle of a row's distances or positions, which count from 1 here."""
    return (row["start"] + row["stop"] + 1) / 2


def only(rows: Sequence[Row], **wanted: int) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def layers(rows: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(row["layer"] for row in rows))


def lengths(rows: Sequence[Row]) -> set[int]:
    return {row["length"] for row in rows}


def style(number: int, count: int) -> Style:
    return Style(
        shades(count)[number], *MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)]
    )


def to_csv(rows: Sequence[Row]) -> str:
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])
