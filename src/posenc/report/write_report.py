"""Writes the report of an experiment to files."""

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from posenc.config.errors import RunError
from posenc.report.report_page import report_page
from posenc.report.report_results import read_results
from posenc.report.result_csv import tables_csv
from posenc.report.runs_table import blocks_csv, ngrams_csv, runs_csv
from posenc.report.table import Table, escape_markdown
from posenc.report.terminal_report import print_report
from posenc.report.verdict_table import verdict_tables, verdicts_csv
from posenc.report.verdict_text import summary
from posenc.runs.files import read_text, write_atomic
from posenc.runs.run_directory import SelectRuns

LINKED_FILE = re.compile(r'href="([\w-]+\.(?:csv|md|tex|png|svg))"')
"""A link of a report's page to another file of the report."""


def write_report(
    folder: Path,
    console: Console,
    *,
    strict: bool = False,
    full: bool = False,
    select: SelectRuns | None = None,
) -> Path:
    """Write and print a report of the runs in `folder`, and return the path of its index.html.

    The report is in `folder`/report/ or, if it covers only the runs that `select` returns, in
    `folder`/report-selected/. Files of an earlier report are replaced or removed. Prints the main
    results, or everything if `full`. Raises ConfigError if `folder` contains no runs, and RunError
    if no run has been evaluated. If `strict`, raises RunError if a premise does not hold or a claim
    fails, after the report has been written.
    """
    results = read_results(folder, select)
    verdicts = results.verdicts
    accuracies, perplexities = results.accuracy_tables, results.perplexity_tables
    accuracy_csv = tables_csv(results.accuracies)
    perplexity_csv = tables_csv(results.losses)
    optional = {
        "ngrams.csv": ngrams_csv(results.experiment),
        "blocks.csv": blocks_csv(results.experiment),
    }
    files = {
        **_table_files("claims", verdicts_csv(verdicts), verdict_tables(verdicts)),
        **_table_files("accuracy", accuracy_csv, accuracies, results.missing),
        **_table_files("extrapolation", perplexity_csv, perplexities, results.missing),
        "runs.csv": runs_csv(results.experiment),
        **{name: text for name, text in optional.items() if text},
        **{name: data for figure in results.figures for name, data in figure.files().items()},
    }
    index = folder / ("report-selected" if select else "report") / "index.html"
    for name in _linked_files(index) - files.keys():  # of an earlier report
        index.with_name(name).unlink(missing_ok=True)
    for name, data in files.items():
        write_atomic(index.with_name(name), data)
    write_atomic(index, report_page(results, files).html())
    print_report(console, results, index, full=full)
    if strict and any(verdict.outcome != "holds" for verdict in verdicts.premises):
        raise RunError(f"premises: {summary(verdicts.premises)}")
    if strict and any(verdict.outcome == "fails" for verdict in verdicts.claims):
        raise RunError(f"claims: {summary(verdicts.claims)}")
    return index


def _linked_files(index: Path) -> set[str]:
    """Return the names of the other files of an existing report, which its page lists."""
    try:
        return {*LINKED_FILE.findall(read_text(index))}
    except (OSError, ValueError):  # there is none, or it was not written by posenc
        return set()


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
