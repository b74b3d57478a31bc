"""A table that can be written as CSV, Markdown and LaTeX and printed to the terminal.

    columns = [Column("encoding", align="left"), Column("64", detail="L", format=".2f")]
    rows = [["alibi", Cell(35.31, best=True)], ["learned", None]]
    table = Table("Perplexity, trained at L = 64", columns, rows)
    console.print(table)  # rich; a table that is too wide is split into several

`page.py` renders a table as HTML. A cell is a string, a number, None (missing), or a `Cell` with
formatting. In HTML and LaTeX, as in Markdown, text between backticks is shown as code.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

MISSING = "-"
Value = str | float | None
CellStyle = Literal["", "good", "bad", "undecided", "bold", "dim", "indented"]
STYLE_SYMBOLS = {"good": "✓ ", "bad": "✗ ", "undecided": "? "}
FORMULA = re.compile(r"\s*([=@＝＠＋－]|[+-](?![\d.]+(e[+-]?\d+)?$|inf$|$))")
"""Matches text that a spreadsheet would read as a formula, unless it is a number."""
RICH_STYLES = {
    "good": "bold green",
    "bad": "bold red",
    "undecided": "bold yellow",
    "bold": "bold",
    "dim": "dim",
}
LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "{}$&#_%"},
}
UNBOUNDED_WIDTH = 10_000  # characters; no table is wider


@dataclass(frozen=True)
class Column:
    """A heading and the format of the cells below it.

    `format` applies to numbers; it is a format specification such as ".2f", or a function. `detail`
    is a second, smaller line of the heading. If `wrap`, long strings are wrapped. In the terminal,
    the first column is always wrapped.
    """

    name: str
    align: Literal["left", "right"] = "right"
    format: str | Callable[[float], str] = ""
    detail: str = ""
    wrap: bool = False

    @property
    def heading(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name


@dataclass(frozen=True)
class Cell:
    """A value and its formatting.

    `details` are smaller lines of text below it, omitted in LaTeX and CSV and, for the best value,
    in the terminal. On a page, `tooltip` is shown on hover.
    """

    value: Value
    best: bool = False
    style: CellStyle = ""
    details: Sequence[str] = ()
    tooltip: str = ""

    @property
    def bold(self) -> bool:
        return self.best or self.style == "bold"


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first `key_columns` columns identify a row.

    If the table is split to fit the terminal, each piece repeats these columns.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | Value]]
    notes: Sequence[str] = ()
    key_columns: int = 1

    @cached_property
    def grid(self) -> list[list[tuple[Column, Cell]]]:
        """The cells of every row, each paired with its column."""
        cells = ([c if isinstance(c, Cell) else Cell(c) for c in row] for row in self.rows)
        return [list(zip(self.columns, row, strict=True)) for row in cells]

    def text(self, cell: Cell, column: Column) -> str:
        """Return the formatted value of a cell, used in every format except CSV."""
        if cell.value is None:
            return MISSING
        if isinstance(cell.value, str):
            return cell.value
        spec = column.format
        return spec(cell.value) if callable(spec) else format(cell.value, spec)

    def text_with_symbol(self, cell: Cell, column: Column) -> str:
        """Return the symbol of the cell's style and its text, for pages and the terminal."""
        return STYLE_SYMBOLS.get(cell.style, "") + self.text(cell, column)

    def tooltip(self, cell: Cell) -> str:
        return cell.tooltip or (repr(cell.value) if isinstance(cell.value, float) else "")

    def to_csv(self) -> str:
        """Return the unrounded values as CSV, without title and notes."""
        values = ([cell.value for _, cell in row] for row in self.grid)
        return csv_text([[column.name for column in self.columns], *values])

    def to_markdown(self) -> str:
        """Return a GitHub-flavored Markdown table between its title and its notes."""
        rule = ["---" if column.align == "left" else "---:" for column in self.columns]
        headers = [escape_markdown(column.heading) for column in self.columns]
        rows = [[_markdown_cell(c, self.text(c, column)) for column, c in row] for row in self.grid]
        body = "\n".join(f"| {' | '.join(row)} |" for row in [headers, rule, *rows])
        title = [f"**{escape_markdown(self.title)}**"] if self.title else []
        return "\n\n".join([*title, body, *map(escape_markdown, self.notes)]) + "\n"

    def to_latex(self) -> str:
        """Return a `table` environment with booktabs and, if a column wraps, tabularx.

        Its caption consists of the title and the notes.
        """
        wraps = any(column.wrap for column in self.columns)
        name, width = ("tabularx", "{\\linewidth}") if wraps else ("tabular", "")
        column_spec = "".join("X" if c.wrap else c.align[0] for c in self.columns)
        headers = [escape_latex(column.heading) for column in self.columns]
        rows = [[_latex_cell(c, self.text(c, column)) for column, c in row] for row in self.grid]
        header, *body = (f"{' & '.join(row)} \\\\\n" for row in [headers, *rows])
        sentences = [f"{self.title}." if self.title else "", *self.notes]
        return (
            f"\\begin{{table}}\n\\begin{{{name}}}{width}{{{column_spec}}}\n"
            f"\\toprule\n{header}\\midrule\n{''.join(body)}\\bottomrule\n\\end{{{name}}}\n"
            f"\\caption{{{escape_latex(' '.join(filter(None, sentences)))}}}\n\\end{{table}}\n"
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(self.title, "bold")
        for i, piece in enumerate(self._pieces(console, options)):
            yield from [Text(), piece] if i else [piece]
        for note in self.notes:
            yield Text(note, "dim")

    def fits(self, console: Console) -> bool:
        """Return whether the table is printed in one piece."""
        return len(self._pieces(console, console.options)) == 1

    def _pieces(self, console: Console, options: ConsoleOptions) -> list[RichTable]:
        """Split the table into the fewest pieces that fit; each has the key columns.

        A table with a wrapping column is not split.
        """
        unbounded = console.options.update(width=UNBOUNDED_WIDTH)
        indices = range(len(self.columns))
        pieces = [self._piece(indices)]
        if any(column.wrap for column in self.columns):
            return pieces
        keys, others = indices[: self.key_columns], indices[self.key_columns :]
        for count in range(len(others), 0, -1):
            starts = range(0, len(others), count)
            pieces = [self._piece([*keys, *others[i : i + count]]) for i in starts]
            pieces = [piece for piece in pieces if piece.row_count] or pieces[:1]
            widths = (Measurement.get(console, unbounded, piece).maximum for piece in pieces)
            if max(widths) <= options.max_width:
                break
        return pieces

    def _piece(self, indices: Sequence[int]) -> RichTable:
        piece = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for i in indices:
            column = self.columns[i]
            heading = Text.assemble(column.name, (f"\n{column.detail}", "dim"))
            piece.add_column(
                heading if column.detail else Text(column.name),
                justify=column.align,
                vertical="top",
                no_wrap=not column.wrap and i > 0,  # wrap names, not numbers
                overflow="fold",
            )
        others = indices[self.key_columns :] if len(indices) < len(self.columns) else []
        for row in self.grid:  # rows without values in this piece are omitted
            if not others or any(row[i][1].value is not None for i in others):
                piece.add_row(*(self._rich_cell(*row[i]) for i in indices))
        return piece

    def _rich_cell(self, column: Column, cell: Cell) -> Text:
        text = self.text_with_symbol(cell, column)
        if cell.best:
            return Text(f"*{text}", "bold green")
        lines = [Text(text, RICH_STYLES.get(cell.style, ""))]
        return Text("\n").join([*lines, *(Text(line, "dim") for line in cell.details)])


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of values as CSV; None becomes MISSING.

    Spreadsheets evaluate text that looks like a formula; a leading apostrophe prevents that.
    """
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerows(map(_csv_cell, row) for row in rows)
    return output.getvalue()


def _csv_cell(value: object) -> object:
    if value is None:
        return MISSING
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def records_csv(records: Sequence[Mapping[str, object]]) -> str:
    """Return the records, which all have the same keys, as CSV with a header row."""
    return csv_text([*map(list, records[:1]), *(list(record.values()) for record in records)])


def escape_markdown(text: str) -> str:
    """Escape the characters that Markdown would read as cell borders, `*` emphasis, HTML or links.

    Line breaks become spaces, because they would end the table row.
    """
    return re.sub(r"([|*<\\]|(?<=\])[(:])", r"\\\1", text.replace("\n", " "))


def escape_latex(text: str) -> str:
    """Escape the special characters of LaTeX; text between backticks becomes code."""
    escaped = "".join(LATEX_ESCAPES.get(character, character) for character in text)
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", escaped)


def _markdown_cell(cell: Cell, text: str) -> str:
    text = f"**{escape_markdown(text)}**" if cell.bold else escape_markdown(text)
    return "<br>".join([text, *map(escape_markdown, cell.details)])


def _latex_cell(cell: Cell, text: str) -> str:
    text = f"\\quad {escape_latex(text)}" if cell.style == "indented" else escape_latex(text)
    return f"\\textbf{{{text}}}" if cell.bold else text
