"""Writes the results of a benchmark to files and prints them to the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from posenc.benchmark.bench_results import compare_kernels, kernel_table
from posenc.benchmark.bench_settings import PASS_TITLES
from posenc.benchmark.cost_figure import cost_figure, row_label
from posenc.config.errors import plural
from posenc.report.page import (
    Page,
    Paragraph,
    Section,
    files_section,
    paragraphs,
    write_page,
)
from posenc.report.table import Column, Table, records_csv
from posenc.report.vega_figure import Figure
from posenc.runs.files import reject_special_files, write_json
from posenc.runs.row_types import Row

NOTE = (
    "ms and tokens/s are medians over the rounds. ratio is the time divided by the time of the"
    " first row in the same table, computed within each round; the table shows its median and"
    " range over the rounds. peak MB is the extra peak memory of the pass, measured in a separate"
    " process, excluding weights, optimizer state and, on a CPU, gradients. utilization is the"
    " FLOP/s of the pass divided by the FLOP/s of a matrix multiplication timed in the same rounds;"
    " posenc/model/flops.py explains how FLOPs are counted."
)
DEFAULT_QUESTION = "How much time and memory does each positional encoding take?"


def write_benchmark(
    folder: Path, rows: Sequence[Row], command: str, about: Mapping[str, Any]
) -> None:
    """Write index.html, and bench.json, .csv, .md, .png and .svg.

    If an encoding was measured with several kernels, also writes kernels.csv. The folder of an
    earlier benchmark is renamed, not overwritten, because its timings cannot be reproduced.

    `about` has the experiment's `title` and optionally its `question`, `interpretation`,
    `limitations`, and the `source` of published costs. All tables and figures are created
    before the earlier folder is renamed. Raises RunError if the folder is a symbolic link.
    """
    reject_special_files([folder])
    figure = cost_figure(rows, about["title"], describe_setup(rows), to_csv(rows))
    files: dict[str, str | bytes] = {
        "bench.md": _markdown(rows, command, about),
        **figure.files(),
    }
    if records := compare_kernels(rows):
        files["kernels.csv"] = records_csv(records)
    page = _page(rows, command, about, figure, list(files))
    _archive_previous(folder)
    write_json(folder / "bench.json", {"command": command, **about, "rows": list(rows)})
    write_page(folder / "index.html", files, page)


def _archive_previous(folder: Path) -> None:
    """Rename the folder of an earlier benchmark by appending the first unused number."""
    if (folder / "bench.json").exists():
        unused = (folder.with_name(f"{folder.name}-{number}") for number in count(1))
        folder.rename(next(path for path in unused if not path.exists()))


def print_benchmark(console: Console, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """Print the tables, the setup, and notes on how to read the tables."""
    console.print(Text(about["title"], "bold"))
    for table in [*cost_tables(rows), *_comparisons(rows, about)]:
        console.print()
        console.print(table)
    for paragraph in [describe_setup(rows), NOTE, *paragraphs(about)]:
        console.print(Text(f"\n{paragraph}", "dim"))


def cost_tables(rows: Sequence[Row]) -> list[Table]:
    """Return a table of times, memory and utilization for each length and pass."""
    columns = [
        Column("encoding", align="left"),
        Column("kernel", align="left"),
        Column("ms", format=_milliseconds),
        Column("tokens/s", format=".0f"),
        Column("ratio", format=".3f"),
        Column("range"),
        Column("peak MB", format=".0f"),
        Column("utilization", format=".1%"),
    ]
    return [Table(title, columns, list(map(_cells, group))) for title, group in _groups(rows)]


def _cells(row: Row) -> list[str | float | None]:
    requested, used = row["kernel"], row["kernels_used"]
    return [
        row["encoding"],
        requested if requested == used else f"{requested}: {used}",
        row["milliseconds"],
        row["tokens_per_second"],
        row["ratio"],
        f"{row['ratio_lowest']:.2f}–{row['ratio_highest']:.2f}",
        row["peak_memory_mb"],
        row["utilization"],
    ]


def published_tables(rows: Sequence[Row], about: Mapping[str, Any]) -> list[Table]:
    """Return tables that compare measured and published ratios, for rows with published ratios."""
    columns = [
        Column("encoding", align="left"),
        Column("time", detail="measured ratio", format=".3f"),
        Column("time", detail="published ratio", format=".3f"),
        Column("memory", detail="measured ratio", format=".3f"),
        Column("memory", detail="published ratio", format=".3f"),
    ]
    names = ["encoding", "ratio", "published_ratio", "peak_memory_ratio", "published_memory_ratio"]
    tables = []
    for title, group in _groups([row for row in rows if row["published_ratio"] is not None]):
        values = [[row[name] for name in names] for row in group]
        tables.append(Table(f"{title}, compared with {about['source']}", columns, values))
    return tables


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV, without values that are lists or mappings."""
    names = [name for name, value in rows[0].items() if not isinstance(value, list | dict)]
    return records_csv([{name: row[name] for name in names} for row in rows])


def describe_setup(rows: Sequence[Row]) -> str:
    """Describe the machine, the model and the settings of the measurements."""

    def values(key: str) -> str:
        return " or ".join(dict.fromkeys(str(row[key]) for row in rows))

    first = rows[0]
    models = dict.fromkeys(_describe_model(row["model_config"]) for row in rows)
    return (
        f"{first['device']}, {plural(first['threads'], 'thread')}, torch {first['torch']},"
        f" {first['date']}: {' or '.join(models)}, vocabulary {values('vocab_size')},"
        f" {values('batch_tokens')} tokens per pass,"
        f" {values('precision')}, {plural(first['rounds'], 'round')}"
    )


def _describe_model(model: Mapping[str, Any]) -> str:
    layers, heads = plural(model["layers"], "layer"), plural(model["heads"], "head")
    return f"width {model['width']}, {layers}, {heads}"


def _markdown(rows: Sequence[Row], command: str, about: Mapping[str, Any]) -> str:
    tables = [*cost_tables(rows), *_comparisons(rows, about)]
    parts = [f"# {about['title']}", f"`{command}`", describe_setup(rows)]
    parts += [*(table.to_markdown() for table in tables), NOTE, *paragraphs(about)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _page(
    rows: Sequence[Row],
    command: str,
    about: Mapping[str, Any],
    figure: Figure,
    files: Sequence[str],
) -> Page:
    notes = [
        NOTE,
        *paragraphs(about, keys=["interpretation", "limitations"]),
    ]
    comparisons = _comparisons(rows, about)
    sections = [
        Section("cost", "Time and memory", [replace(figure, title="Time"), *cost_tables(rows)]),
        Section("notes", "Notes", [Paragraph(note) for note in notes]),
        files_section(command, ["bench.json", *files]),
    ]
    if comparisons:
        sections.insert(1, Section("comparison", "Comparisons", comparisons))
    question = " ".join(paragraphs(about, keys=["question"])) or DEFAULT_QUESTION
    return Page(about["title"], question, sections, finding=finding(rows))


def finding(rows: Sequence[Row]) -> str:
    """Return a sentence that summarizes the last table: the last pass at the longest length.

    It gives the time of the first row, and the smallest and the largest ratio to it, with their
    ranges over the rounds.
    """
    title, (first, *others) = _groups(rows)[-1]
    text = f"{title}: {row_label(first, rows)} takes {_milliseconds(first['milliseconds'])} ms"
    if not others:
        return f"{text}."
    ordered = sorted(others, key=lambda row: row["ratio"])
    names = [row_label(row, rows) for row in ordered]
    ratios = [
        f"{row['ratio']:.2f} times as long"
        f" ({row['ratio_lowest']:.2f} to {row['ratio_highest']:.2f})"
        for row in ordered
    ]
    if len(others) == 1:
        return f"{text}; {names[0]} takes {ratios[0]}."
    return (
        f"{text}; of the {len(others)} others, {names[0]} is the fastest: it takes {ratios[0]}. The"
        f" slowest, {names[-1]}, takes {ratios[-1]}."
    )


def _comparisons(rows: Sequence[Row], about: Mapping[str, Any]) -> list[Table]:
    """Return the tables that compare kernels with each other, and measured with published costs."""
    records = compare_kernels(rows)
    return [*([kernel_table(records)] if records else []), *published_tables(rows, about)]


def _groups(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows grouped by length and pass, each group with a title."""
    return [
        (f"L = {length}, {PASS_TITLES[pass_]}", list(group))
        for (length, pass_), group in groupby(rows, lambda row: (row["length"], row["pass"]))
    ]


def _milliseconds(value: float) -> str:
    """Format with three significant digits, but keep all digits before the decimal point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
