"""Writes the report of an experiment to files and prints it.

In the CSV files of the result tables, each evaluation length and each interval bound has a column.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from posenc.config.errors import RunError
from posenc.report.confidence import Band
from posenc.report.curve_set import CurveSet, DisplayedQuantity
from posenc.report.page import write_page
from posenc.report.report_page import report_page
from posenc.report.report_results import read_results
from posenc.report.result_rows import ResultRow, TableValue
from posenc.report.result_tables import (
    format_length_ratio,
    format_published_ratio,
    matching_published_curves,
)
from posenc.report.runs_table import blocks_csv, ngrams_csv, runs_csv
from posenc.report.table import Table, escape_markdown, records_csv
from posenc.report.terminal_report import print_report
from posenc.report.verdicts import summary, verdict_tables, verdicts_csv
from posenc.runs.run_directory import SelectRuns

COLUMN_SUFFIXES = ("low", "high", "text_low", "text_high", "best")


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
    if plan.json is invalid or no run has been evaluated. If `strict`, raises RunError if a premise
    does not hold or a claim fails, after the report has been written.
    """
    results = read_results(folder, select)
    verdicts = results.verdicts
    accuracies, perplexities = results.accuracy_tables, results.perplexity_tables
    files = {
        **_table_files("claims", verdicts_csv(verdicts), verdict_tables(verdicts)),
        **_table_files("accuracy", tables_csv(results.accuracies), accuracies, results.missing),
        **_table_files("extrapolation", tables_csv(results.losses), perplexities, results.missing),
        "runs.csv": runs_csv(results.experiment),
        "ngrams.csv": ngrams_csv(results.experiment),
        "blocks.csv": blocks_csv(results.experiment),
        **{name: data for figure in results.figures for name, data in figure.files().items()},
    }
    files = {name: data for name, data in files.items() if data}
    index = folder / ("report-selected" if select else "report") / "index.html"
    write_page(index, files, report_page(results, files))
    print_report(console, results, index, full=full)
    if strict and any(verdict.outcome != "holds" for verdict in verdicts.premises):
        raise RunError(f"premises: {summary(verdicts.premises)}")
    if strict and any(verdict.outcome == "fails" for verdict in verdicts.claims):
        raise RunError(f"claims: {summary(verdicts.claims)}")
    return index


def _table_files(
    stem: str, csv: str, tables: Sequence[Table], missing: Sequence[str] = ()
) -> dict[str, str]:
    """Return the files of the tables; the Markdown file ends with the lines of `missing`."""
    if not tables:
        return {}
    notes = [f"{escape_markdown(line)}\n" for line in missing]
    return {
        f"{stem}.csv": csv,
        f"{stem}.md": "\n".join([*(table.to_markdown() for table in tables), *notes]),
        f"{stem}.tex": "\n".join(table.to_latex() for table in tables),
    }


def tables_csv(sets: Sequence[tuple[CurveSet, Sequence[ResultRow]]]) -> str:
    """Return the result tables of all curve sets and the published curves as one CSV table."""
    lengths = sorted({x for curves, _ in sets for x in curves.x_values})
    has_early_tokens = any(row.early_tokens for _, rows in sets for row in rows)
    records = []
    for curves, rows in sets:
        published, quantity = matching_published_curves(curves), curves.quantity
        for row in rows:
            label, points = row.curve.label, row.values.items()
            numbers = {x: quantity.from_mean(value.point.mean) for x, value in points}
            record = {**curves.key, curves.label_heading: label, "seeds": row.curve.seeds}
            for x in lengths:
                text = quantity.format(numbers[x]) if x in numbers else None
                record |= {f"{x:.0f}": text, **_intervals(x, row.values.get(x), quantity)}
            record["longest_over_train_length"] = format_length_ratio(row.curve, curves)
            records.append(record | (_early_columns(row) if has_early_tokens else {}))
            if label in published:
                values = published[label].values
                texts = {f"{x:.0f}": quantity.format(values[x]) for x in lengths if x in values}
                ratio = format_published_ratio(values, curves)
                fields = {
                    curves.label_heading: f"{label}, published",
                    "longest_over_train_length": ratio,
                }
                records.append(dict.fromkeys(records[-1]) | curves.key | texts | fields)
    return records_csv(records)


def _intervals(x: float, value: TableValue | None, quantity: DisplayedQuantity) -> dict[str, Any]:
    """Return the columns that follow the value at one length.

    `low` and `high` are the t interval over seeds, `text_low` and `text_high` the bootstrap
    interval over text and seeds (or over text alone, with too few seeds), and `best` is whether the
    value is marked as best.
    """
    cells: list[Any] = [None] * len(COLUMN_SUFFIXES)
    if value is not None:
        t_bounds, interval = _t_bounds(value.point.band), value.point.text_interval
        bounds = [*t_bounds, *((interval.low, interval.high) if interval else (None, None))]
        numbers = (None if bound is None else quantity.from_mean(bound) for bound in bounds)
        rounded = [None if number is None else f"{number:.6g}" for number in numbers]
        cells = [*rounded, str(value.best).lower()]
    return {f"{x:.0f}_{suffix}": cell for suffix, cell in zip(COLUMN_SUFFIXES, cells, strict=True)}


def _early_columns(row: ResultRow) -> dict[str, Any]:
    """Return the columns of `EarlyTokenEffect`, each value with its t interval over seeds.

    S is the slope of the loss against 1/T, in nats per window. It is not used to compute the
    fraction, which is the part of the gain beyond L that early tokens explain.
    """
    early = row.early_tokens
    bands = (early.slope, early.fraction) if early else (None, None)
    columns: dict[str, Any] = {}
    for name, band in zip(("S", "early_token_fraction"), bands, strict=True):
        numbers = (band.mean, *_t_bounds(band)) if band else (None, None, None)
        texts = (None if number is None else f"{number:.6g}" for number in numbers)
        columns |= zip((name, f"{name}_low", f"{name}_high"), texts, strict=True)
    return columns


def _t_bounds(band: Band) -> tuple[float | None, float | None]:
    """Return the bounds of a t interval; None with too few seeds."""
    return (band.low, band.high) if band.is_t_interval else (None, None)
