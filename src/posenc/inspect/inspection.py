"""The results of an inspection: tables and figures, their files, page, terminal and W&B output."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from posenc.report.page import Block, Bullets, Commands, Links, Page, Section
from posenc.report.table import Column, Table, Value
from posenc.report.vega_figure import Figure
from posenc.runs.files import write_atomic
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import Inspection, Tracker

ROUNDING = 1e-9
"""Smaller numbers are rounding errors of float64."""
WRAP_FROM = 40  # characters
FILE_TYPES = (".csv", ".md", ".png", ".svg")


@dataclass(frozen=True)
class InspectionTable:
    """A table, the section of the page that shows it, and the stem of its csv and Markdown.

    Without a section it is not on the page; without a stem it has no files.
    """

    section: str
    file: str
    table: Table
    printed: bool = True

    def files(self) -> dict[str, str]:
        if not self.file:
            return {}
        return {
            f"{self.file}.csv": self.table.to_csv(),
            f"{self.file}.md": self.table.to_markdown(),
        }


@dataclass(frozen=True)
class InspectionResults:
    """Tables and figures; `sections` are the headings of the page by section, in its order."""

    title: str
    question: str
    sections: Mapping[str, str]
    tables: Sequence[InspectionTable]
    figures: Sequence[Figure]
    notes: Sequence[str] = ()


def make_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    note: str = "",
    keys: int = 1,
) -> Table:
    """Return a table whose columns of texts are aligned left, and wrapped where they are long."""
    texts = [
        [cell for cell in column if isinstance(cell, str)] for column in zip(*rows, strict=True)
    ]
    shown = [
        Column(
            name,
            align="left" if column else "right",
            format=short_number,
            wrap=max(map(len, column), default=0) > WRAP_FROM,
        )
        for name, column in zip(columns, texts, strict=True)
    ]
    return Table(title, shown, rows, [note] if note else [], keys)


def short_number(number: float) -> str:
    """Return three digits, or 0 for a rounding error."""
    if not isfinite(number):
        return str(number)
    if abs(number) < ROUNDING:
        return "0"
    if float(number).is_integer() and abs(number) < 1e9:
        return f"{number:.0f}"
    return f"{number:.3g}"


def write_inspection(folder: Path, results: InspectionResults, command: str) -> Path:
    """Write the files of all tables and figures and the page; return the path of the page.

    Nothing is written before everything has been made. Files of an earlier inspection are removed.
    """
    files: dict[str, str | bytes] = {}
    for part in [*results.tables, *results.figures]:
        files |= part.files()
    page = Page(results.title, results.question, _sections(results, command, list(files))).html()
    for name, data in files.items():
        write_atomic(folder / name, data)
    write_atomic(folder / "index.html", page)
    for path in folder.iterdir():
        if path.suffix in FILE_TYPES and path.name not in files:
            path.unlink()
    return folder / "index.html"


def print_inspection(console: Console, results: InspectionResults, index: Path) -> None:
    """Print the tables for the terminal, the notes, and the path of the page."""
    for table in results.tables:
        if table.printed:
            console.print(table.table)
            console.print()
    for note in results.notes:
        console.print(Text(note, "dim"))
    console.print(str(index), soft_wrap=True, highlight=False)


def track_inspection(
    tracker: Tracker,
    run: RunDirectory,
    folder: Path,
    results: InspectionResults,
    config: Mapping[str, Any],
) -> None:
    """Log the tables and the figures in `folder` as the tracked run `run`."""
    tables = {
        part.file: ([column.name for column in part.table.columns], part.table.rows)
        for part in results.tables
        if part.file
    }
    images = [folder / f"{figure.file}.png" for figure in results.figures]
    tracker.log_inspection(Inspection(run, config, tables, images))


def _sections(results: InspectionResults, command: str, files: Sequence[str]) -> list[Section]:
    blocks: defaultdict[str, list[Block]] = defaultdict(list)
    for part in results.tables:
        blocks[part.section].append(part.table)
    for figure in results.figures:
        blocks[figure.section].append(figure)
    sections = [
        Section(name, heading, blocks[name])
        for name, heading in results.sections.items()
        if name in blocks
    ]
    if results.notes:
        sections.append(Section("notes", "Notes", [Bullets(results.notes)]))
    downloads = [Commands([command]), Links([(name, name, "") for name in files])]
    return [*sections, Section("files", "Command and files", downloads, "Files")]
