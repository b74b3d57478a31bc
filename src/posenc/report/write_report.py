"""Writes the report of an experiment to files and prints it to the terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from posenc.config.errors import RunError
from posenc.report.report_page import report_page
from posenc.report.report_results import Results, read_results
from posenc.report.runs_table import blocks_csv, ngrams_csv, runs_csv
from posenc.report.table import Table, escape_markdown
from posenc.report.verdict_table import terminal_table, verdict_tables, verdicts_csv
from posenc.report.verdict_text import summary
from posenc.runs.files import write_atomic

PRINTED_TERMS = ("Model", "Training", "Training data", "Tokenizer", "Evaluation", "Seeds")


def write_report(folder: Path, console: Console, *, strict: bool = False) -> Path:
    """Write `folder`/report/ from the runs in `folder`, print it, and return its index.html.

    Raises ConfigError if `folder` contains no runs, and RunError if no run has been evaluated. If
    `strict`, raises RunError if a premise does not hold or a claim fails, after the report has been
    written.
    """
    results = read_results(folder)
    verdicts = results.verdicts
    accuracies, perplexities = results.accuracy_tables, results.perplexity_tables
    optional = {
        "ngrams.csv": ngrams_csv(results.experiment),
        "blocks.csv": blocks_csv(results.experiment),
    }
    files = {
        **_table_files("claims", verdicts_csv(verdicts), verdict_tables(verdicts)),
        **_table_files("accuracy", results.accuracy_csv, accuracies, results.missing),
        **_table_files("extrapolation", results.perplexity_csv, perplexities, results.missing),
        "runs.csv": runs_csv(results.experiment),
        **{name: text for name, text in optional.items() if text},
        **{name: data for figure in results.figures for name, data in figure.files().items()},
    }
    index = folder / "report" / "index.html"
    for name, data in files.items():
        write_atomic(index.with_name(name), data)
    write_atomic(index, report_page(results, files).html())
    _print_report(console, results, index)
    if strict and any(verdict.outcome != "holds" for verdict in verdicts.premises):
        raise RunError(f"premises: {summary(verdicts.premises)}")
    if strict and any(verdict.outcome == "fails" for verdict in verdicts.claims):
        raise RunError(f"claims: {summary(verdicts.claims)}")
    return index


def _print_report(console: Console, results: Results, index: Path) -> None:
    """Print verdicts, tables, setup and conclusions; the last line is the path of index.html."""
    judged = {"Premises": results.verdicts.premises, "Claims": results.verdicts.claims}
    for heading, verdicts in judged.items():
        if verdicts:
            console.print(Text(f"{heading}: {summary(verdicts)}", "bold"))
            console.print(terminal_table(verdicts))
            console.print()
    for table in [*results.accuracy_tables, *results.perplexity_tables]:
        console.print(table)
        console.print()
    _print_list(console, "".join(results.missing[:1]), results.missing[1:])
    setup = [f"{term}: {value}" for term, value in results.setup if term in PRINTED_TERMS]
    _print_list(console, "Setup", setup)
    _print_list(console, "Conclusions", results.conclusions)
    _print_list(console, "Limitations", results.limitations)
    path = index.resolve()
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else index
    console.print(Text(str(path)), soft_wrap=True)


def _table_files(
    stem: str, csv: str, tables: Sequence[Table], missing: Sequence[str] = ()
) -> dict[str, str]:
    """Return the files of the tables; the Markdown file also lists the runs without results."""
    if not tables:
        return {}
    notes = [f"{escape_markdown(line)}\n" for line in missing]
    return {
        f"{stem}.csv": csv,
        f"{stem}.md": "\n".join([*(table.to_markdown() for table in tables), *notes]),
        f"{stem}.tex": "\n".join(table.to_latex() for table in tables),
    }


def _print_list(console: Console, heading: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    console.print(Text(heading, "bold"))
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="fold")  # paths are not cut off
    for line in lines:
        grid.add_row(" -", Text(line))
    console.print(grid)
    console.print()
