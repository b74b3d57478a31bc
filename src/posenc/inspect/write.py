"""From findings to files, a page, the terminal and W&B."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from posenc.inspect.findings import Findings, Table
from posenc.inspect.formats import folds, to_block, to_csv, to_markdown, to_terminal
from posenc.report.page import Block, Bullets, Commands, Links, Page, Section
from posenc.runs.files import write_atomic
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import Inspection, Tracker

UNBOUNDED = 10**4  # columns; a narrower terminal breaks the lines
WRITTEN = (".csv", ".md", ".png", ".svg")


def write(folder: Path, findings: Findings, command: str) -> Path:
    """Write csv and md for each table, csv, png and svg for each figure, and the page; its path.

    All of it is made before the first file is written; what an earlier inspection left is removed.
    """
    made: dict[str, str | bytes] = {
        **{name: data for table in findings.tables for name, data in _table(table).items()},
        **{name: data for picture in findings.pictures for name, data in picture.files().items()},
    }
    sections = _sections(findings, command, made)
    page = Page(findings.title, findings.question, sections).html()
    for name, data in made.items():
        write_atomic(folder / name, data)
    write_atomic(folder / "index.html", page)
    for stale in folder.iterdir():
        if stale.suffix in WRITTEN and stale.name not in made:
            stale.unlink()
    return folder / "index.html"


def show(console: Console, findings: Findings, index: Path) -> None:
    """Print the tables that are meant for it, how to read them, and where the page is."""
    for table in findings.tables:
        if table.printed:
            made = to_terminal(table)
            if not folds(table):
                wide = console.options.update(width=UNBOUNDED)
                console.width = max(console.width, Measurement.get(console, wide, made).maximum)
            console.print(Text(table.title, "bold"))
            console.print(made)
            if table.caption:
                console.print(Text(table.caption, "dim"))
            console.print()
    for note in findings.notes:
        console.print(Text(note, "dim"))
    console.print(str(index), soft_wrap=True, highlight=False)


def mirror(
    tracker: Tracker,
    run: RunDirectory,
    folder: Path,
    findings: Findings,
    config: Mapping[str, Any],
) -> None:
    """The tables and the written figures as a W&B run of its own; `run` is what it is called."""
    tables = {table.file: (table.columns, table.rows) for table in findings.tables if table.file}
    images = [folder / f"{picture.file}.png" for picture in findings.pictures]
    tracker.log_inspection(Inspection(run, config, tables, images))


def _table(table: Table) -> dict[str, str]:
    if not table.file:
        return {}
    return {f"{table.file}.csv": to_csv(table), f"{table.file}.md": to_markdown(table)}


def _sections(findings: Findings, command: str, made: Mapping[str, str | bytes]) -> list[Section]:
    blocks: defaultdict[str, list[Block]] = defaultdict(list)
    for table in findings.tables:
        blocks[table.section].append(to_block(table))
    for picture in findings.pictures:
        blocks[picture.section].append(picture)
    sections = [
        Section(name, heading, blocks[name])
        for name, heading in findings.sections.items()
        if name in blocks
    ]
    if findings.notes:
        sections.append(Section("reading", "How to read it", [Bullets(findings.notes)]))
    files = [Commands([command]), Links([(name, name, "") for name in made])]
    return [*sections, Section("files", "The command and its files", files, "Files")]
