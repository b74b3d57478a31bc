"""The report as it is printed: verdicts, tables, what was measured, how to read it, the page."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from posenc.report.cautions import cautions
from posenc.report.formats import to_terminal
from posenc.report.measured import measured
from posenc.report.reading import conclusions, missing
from posenc.report.results import Results
from posenc.report.verdict_formats import verdicts_terminal
from posenc.report.verdicts import lines_of, summary

PRINTED = ("Model", "Training", "Training data", "Tokenizer", "Evaluated on", "Seeds")


def show(console: Console, results: Results, index: Path) -> None:
    """Print everything a reader needs without the page; the page's path is the last line."""
    experiment, verdicts = results.experiment, results.experiment.verdicts
    if verdicts:
        console.print(Text(f"Claims: {summary(verdicts)}", "bold"))
        console.print(verdicts_terminal(lines_of(verdicts)))
        console.print()
    for table in results.tables:
        console.print(Text(table.title, "bold"))
        for piece in to_terminal(table, console):
            console.print(piece)
        console.print(Text(table.caption, "dim"))
        console.print()
    without = missing(experiment)
    _lines(console, "".join(without[:1]), without[1:])
    facts = [
        f"{name}: {text}" for name, text in measured(experiment, results.panels) if name in PRINTED
    ]
    _lines(console, "What was measured", facts)
    _lines(console, "What to conclude", conclusions(experiment, results.lengths))
    _lines(console, "What not to conclude", cautions(experiment, results.lengths, results.tasks))
    console.print(Text(str(_near(index))), soft_wrap=True)


def _lines(console: Console, heading: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    console.print(Text(heading, "bold"))
    grid = RichTable.grid(padding=(0, 1))
    for line in lines:
        grid.add_row(" -", Text(line))
    console.print(grid)
    console.print()


def _near(path: Path) -> Path:
    here = Path.cwd()
    return path.resolve().relative_to(here) if path.resolve().is_relative_to(here) else path
