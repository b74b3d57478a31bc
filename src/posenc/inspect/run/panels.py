"""Panels of a run's figures: rows as lines, one for each head."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from posenc.inspect.run.tables import Row
from posenc.report.chart import Dot, Line, Subplot, VerticalLine
from posenc.report.confidence import exact
from posenc.report.encoding_styles import DASHES, Style, style_at, sweep_styles
from posenc.report.table import csv_text

Value = Callable[[Row], float]


def frame(
    heading: str, rows: Sequence[Row], point: tuple[Value, Value], group: str, train_length: int
) -> Subplot:
    """A line for each head, through the `point` (x, y) of each row."""
    x, y = point
    heads = list(dict.fromkeys(row["head"] for row in rows))
    lines = []
    for n, head in enumerate(heads):
        of_head = [row for row in rows if row["head"] == head]
        dots = tuple(Dot(x(row), exact(y(row))) for row in of_head)
        lines.append(Line(f"head {head}", style(n, len(heads)), dots))
    return Subplot(heading, tuple(lines), group, (VerticalLine(train_length, "L"),))


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
    shade = sweep_styles(style_at(0), count)[number]
    return replace(shade, dash=DASHES[number % len(DASHES)])


def to_csv(rows: Sequence[Row]) -> str:
    return csv_text([list(rows[0]), *(list(row.values()) for row in rows)])
