"""The results of an inspection, written to files, an HTML report, the terminal and W&B."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from rich.text import Text

from posenc.config.console import Console
from posenc.report.page import Block, Bullets, Page, Section, files_section, write_page
from posenc.report.table import Column, Table, Value
from posenc.report.vega_figure import Figure
from posenc.runs.files import reject_special_files
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import Inspection, Tracker

ROUNDING_ERROR = 1e-9
"""Absolute values below this are treated as float64 rounding errors."""
MIN_WRAPPED_LENGTH = 40  # characters


@dataclass(frozen=True)
class InspectionTable:
    """A table with the report section that shows it and the stem of its csv and Markdown files.

    A table with an empty section is not in the report; one with an empty stem is not saved to
    files. `printed` means that the terminal also shows the table.
    """

    section: str
    file_stem: str
    table: Table
    printed: bool

    def files(self) -> dict[str, str]:
        """Return the content of each file by name."""
        if not self.file_stem:
            return {}
        return {
            f"{self.file_stem}.csv": self.table.to_csv(),
            f"{self.file_stem}.md": self.table.to_markdown(),
        }


@dataclass(frozen=True)
class InspectionResults:
    """Tables, figures and notes; `sections` maps each section of the report to its heading.

    `finding` answers the question in one or two sentences; it is empty if no measurement does.
    """

    title: str
    question: str
    sections: Mapping[str, str]
    tables: Sequence[InspectionTable]
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    finding: str = ""


def make_table(
    section: str,
    file_stem: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Value]],
    note: str = "",
    *,
    key_columns: int = 1,
    printed: bool = True,
) -> InspectionTable:
    """Return a table in which string columns are left-aligned, and wrapped if they are wide.

    The first `key_columns` columns identify a row.
    """
    strings = [
        [cell for row in rows if isinstance(cell := row[index], str)]
        for index in range(len(columns))
    ]
    formatted_columns = [
        Column(
            name,
            align="left" if cells else "right",
            format=short_number,
            wrap=max(map(len, cells), default=0) > MIN_WRAPPED_LENGTH,
        )
        for name, cells in zip(columns, strings, strict=True)
    ]
    table = Table(title, formatted_columns, rows, [note] if note else [], key_columns)
    return InspectionTable(section, file_stem, table, printed)


def short_number(number: float) -> str:
    """Format with 3 significant digits, integers below 1e9 in full, and rounding errors as 0."""
    if not isfinite(number):
        return str(number)
    if abs(number) < ROUNDING_ERROR:
        return "0"
    if float(number).is_integer() and abs(number) < 1e9:
        return f"{number:.0f}"
    return f"{number:.3g}"


def write_inspection(folder: Path, results: InspectionResults, command: str) -> Path:
    """Write the HTML report and the files of all tables and figures; return the report's path.

    All content is rendered before the first file is written. Files that the page of an earlier
    inspection links to and that are not written again are removed. Raises RunError if the folder is
    a symbolic link.
    """
    reject_special_files([folder])
    files: dict[str, str | bytes] = {}
    for output in [*results.tables, *results.figures]:
        files |= output.files()
    sections = _sections(results, command, list(files))
    index = folder / "index.html"
    page = Page(results.title, results.question, sections, finding=results.finding)
    write_page(index, files, page)
    return index


def publish_inspection(
    results: InspectionResults,
    command: str,
    folder: Path,
    tracker: Tracker,
    run: RunDirectory,
    config: Mapping[str, Any],
) -> None:
    """Write the results to `folder`, log them under the tracker's run for `run`, and print them.

    The terminal shows the tables meant for it, the notes, and the path of the HTML report.
    """
    index, console = write_inspection(folder, results, command), Console()
    tables = {table.file_stem: table.table for table in results.tables if table.file_stem}
    images = [folder / f"{figure.file_stem}.png" for figure in results.figures]
    tracker.log_inspection(Inspection(run, config, tables, images))
    for table in results.tables:
        if table.printed:
            console.print(table.table)
            console.print()
    for note in results.notes:
        console.print(Text(note, "dim"))
    console.print(str(index), soft_wrap=True, highlight=False)


def _sections(results: InspectionResults, command: str, files: Sequence[str]) -> list[Section]:
    """Return the report's sections: tables and figures, then notes, command and file links."""
    blocks: defaultdict[str, list[Block]] = defaultdict(list)
    for table in results.tables:
        blocks[table.section].append(table.table)
    for figure in results.figures:
        blocks[figure.section].append(figure)
    sections = [
        Section(name, heading, blocks[name])
        for name, heading in results.sections.items()
        if name in blocks
    ]
    if results.notes:
        sections.append(Section("notes", "Notes", [Bullets(results.notes)]))
    return [*sections, files_section(command, files)]
