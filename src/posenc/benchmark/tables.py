"""The rows as tables: for the terminal, as Markdown, as csv."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from posenc.benchmark.results import Row

MISSING = "-"


class Column(NamedTuple):
    """A heading and how a row fills it; text stands left, numbers right."""

    name: str
    cell: Callable[[Row], str]
    text: bool = False


WHERE = [
    Column("length", lambda row: str(row["length"])),
    Column("pass", lambda row: row["pass"], True),
]
COST = [
    Column("encoding", lambda row: row["encoding"], True),
    Column("kernel", lambda row: _kernel(row["kernel"], row["kernels_used"]), True),
    Column("ms", lambda row: _milliseconds(row["milliseconds"])),
    Column("tokens/s", lambda row: f"{row['tokens_per_second']:.0f}"),
    Column("ratio", lambda row: f"{row['ratio']:.3f}"),
    Column("range", lambda row: f"{row['ratio_lowest']:.2f}–{row['ratio_highest']:.2f}"),
    Column("peak MB", lambda row: _number(row["peak_memory_mb"], ".0f")),
    Column("utilised", lambda row: f"{row['utilisation']:.1%}"),
]
BESIDE = [
    Column("encoding", lambda row: row["encoding"], True),
    Column("ratio", lambda row: f"{row['ratio']:.3f}"),
    Column("published", lambda row: _number(row["published_ratio"], ".3f")),
    Column("memory ratio", lambda row: _number(row["peak_memory_ratio"], ".3f")),
    Column("published", lambda row: _number(row["published_memory_ratio"], ".3f")),
]


def terminal(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """A table under a heading for each length and pass; what is text is folded where it must be."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    for column in columns:
        side = "left" if column.text else "right"
        table.add_column(column.name, justify=side, no_wrap=not column.text, overflow="fold")
    before = ""
    for row in rows:
        heading = f"L={row['length']} {row['pass']}"
        if heading != before:
            table.add_row(Text(heading, "bold"))
        before = heading
        table.add_row(*(Text(column.cell(row)) for column in columns))
    return table


def markdown(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """A GitHub table, length and pass in front."""
    every = [*WHERE, *columns]
    rule = ["---" if column.text else "---:" for column in every]
    lines = [[column.name for column in every], rule]
    lines += [[column.cell(row).replace("|", "\\|") for column in every] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """Every row with all of its single values."""
    names = [name for name, value in rows[0].items() if not isinstance(value, list | dict)]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _kernel(asked: str, chosen: str) -> str:
    return asked if asked == chosen else f"{asked}: {chosen}"


def _milliseconds(value: float) -> str:
    """Three digits at least, all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _number(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)
