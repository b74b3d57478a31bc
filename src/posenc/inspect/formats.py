"""A table of an inspection for the terminal, as Markdown, HTML and csv."""

from math import isinf, isnan
from textwrap import wrap

from rich.table import Table as RichTable
from rich.text import Text

from posenc.inspect.findings import Cell, Table
from posenc.report.table import MISSING, Column, csv_text, escape_markdown
from posenc.report.table import Table as ReportTable

ZERO = 1e-9
"""What lies below is rounding in float64."""
LONG = 40  # letters of a text that may be broken
HEADING = 12  # letters of a line of a heading in the terminal


def text(cell: Cell) -> str:
    """Three digits of a number, 0 for what float64 cannot tell from it; texts as they are."""
    if cell is None:
        return MISSING
    if isinstance(cell, str):
        return cell
    if isnan(cell) or isinf(cell):
        return str(cell)
    if abs(cell) < ZERO:
        return "0"
    if float(cell).is_integer() and abs(cell) < 1e9:
        return f"{cell:.0f}"
    return f"{cell:.3g}"


def to_terminal(table: Table) -> RichTable:
    """Texts stand left, numbers right; a last column of texts is folded where it must be."""
    made = RichTable(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for i, (column, worded) in enumerate(zip(table.columns, _worded(table), strict=True)):
        heading = "\n".join(wrap(column, HEADING, break_long_words=False))
        whole = not folds(table) or i < len(table.columns) - 1
        side = "left" if worded else "right"
        made.add_column(heading, justify=side, no_wrap=whole, overflow="fold")
    for row in table.rows:
        made.add_row(*(Text(text(cell)) for cell in row))
    return made


def folds(table: Table) -> bool:
    """Whether the last column is of long texts."""
    return any(isinstance(row[-1], str) and len(row[-1]) > LONG for row in table.rows)


def to_markdown(table: Table) -> str:
    """A GitHub table."""
    rule = ["---" if worded else "---:" for worded in _worded(table)]
    lines = [[escape_markdown(text(cell)) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [table.columns, rule, *lines]) + "\n"


def to_block(table: Table) -> ReportTable:
    """The table as a part of a page."""
    long = [
        any(isinstance(cell, str) and len(cell) > LONG for cell in column)
        for column in zip(*table.rows, strict=True)
    ]
    columns = [
        Column(name, align="left" if worded else "right", format=text, wrap=wraps)
        for name, worded, wraps in zip(table.columns, _worded(table), long, strict=True)
    ]
    return ReportTable(table.title, columns, table.rows, [table.caption] if table.caption else [])


def to_csv(table: Table) -> str:
    """Numbers as they were measured."""
    return csv_text([table.columns, *table.rows])


def _worded(table: Table) -> list[bool]:
    """Which columns hold texts."""
    columns = zip(*table.rows, strict=True)
    return [any(isinstance(cell, str) for cell in column) for column in columns]
