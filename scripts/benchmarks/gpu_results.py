"""Write tables of the results of scripts/gpu.sh.

    python scripts/benchmarks/gpu_results.py outputs/gpu [--docs docs]

Writes results.md to the folder. With --docs, also replaces the section on GPUs in
docs/benchmarks.md and copies the report of alibi_extrapolation to docs/results.
"""

import argparse
import json
import shutil
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from posenc.benchmark.bench_report import cost_tables, describe_setup
from posenc.benchmark.bench_results import compare_kernels, kernel_table
from posenc.config.compose import compose
from posenc.report.table import Column, Table

MACHINES = {"H100": "h100", "H200": "h100", "A100": "a100"}
"""Part of a device's name -> option of `machine` with the peak FLOP/s of its data sheet."""
START, END = "<!-- gpu results: written by scripts/benchmarks/gpu_results.py -->", "<!-- end -->"
EXPERIMENT = "alibi_extrapolation-gpu_hour"


def peak_flops(device: str) -> float | None:
    """Return the data sheet's bfloat16 FLOP/s of a GPU, or None for other devices."""
    names = [machine for part, machine in MACHINES.items() if part in device]
    return compose("plan", [f"machine={names[0]}"]).machine.bf16 if names else None


def step_table(file: Path) -> str:
    """Return a table of training steps of `posenc bench`, with MFU against the data sheet."""
    rows = json.loads(file.read_text())["rows"]
    peak = peak_flops(rows[0]["device"])
    (table,) = cost_tables(rows)
    mfu = [peak and 1e3 * row["flops"] / row["milliseconds"] / peak for row in rows]
    compiled = ", compiled" if rows[0]["compile"] else ""
    return replace(
        table,
        title=f"{describe_setup(rows)}{compiled}",
        columns=[*table.columns, Column("MFU", format=".1%")],
        rows=[[*cells, value] for cells, value in zip(table.rows, mfu, strict=True)],
    ).to_markdown()


def peers_table(file: Path) -> str:
    """Return the results of compare_implementations.py; times are medians over the rounds."""
    results: dict[str, Any] = json.loads(file.read_text())
    rounds, flops = results["rounds"], results["flops"]
    peak = peak_flops(results["setup"])
    cells = []
    for name in [name for name in flops if name != "product"]:
        seconds = statistics.median(row[name] for row in rounds)
        product = statistics.median(row["product"] for row in rounds)
        counterpart = results["compared_with"].get(name)
        ratios = [row[counterpart] / row[name] for row in rounds] if counterpart else []
        cells.append(
            [
                name,
                1e3 * seconds,
                flops[name] / seconds / (flops["product"] / product),
                peak and flops[name] / seconds / peak,
                f"{counterpart}: {statistics.median(ratios):.3f}" if ratios else None,
            ]
        )
    columns = [
        Column("model", align="left"),
        Column("ms per step", format=".1f"),
        Column("utilization", format=".1%"),
        Column("MFU", format=".1%"),
        Column("posenc's time / this model's time", align="left"),
    ]
    return Table(results["setup"], columns, cells).to_markdown()


def kernels_table(file: Path) -> str:
    """Return the table of kernels of `posenc bench experiment=kernel_choice`."""
    rows = json.loads(file.read_text())["rows"]
    table = kernel_table(compare_kernels(rows))
    return replace(table, title=describe_setup(rows)).to_markdown()


def markdown(folder: Path) -> str:
    """Return the tables of all results in the folder of scripts/gpu.sh."""
    parts = [
        *map(peers_table, sorted(folder.glob("peers_*.json"))),
        *map(step_table, sorted(folder.glob("steps_*/bench/bench.json"))),
        *map(kernels_table, sorted(folder.glob("kernels_*/bench/bench.json"))),
    ]
    note = (
        "`utilization` is relative to the matrix product that was timed in the same rounds, `MFU`"
        " to the data sheet; both count only half of the query-key pairs, as attention is causal."
    )
    return "\n\n".join(part.strip() for part in [note, *parts]) + "\n"


def write_docs(folder: Path, docs: Path, tables: str) -> None:
    """Replace the section on GPUs in benchmarks.md, and copy the report of the experiment."""
    page = docs / "benchmarks.md"
    before, start, rest = page.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        sys.exit(f"{page} must have the lines {START} and {END}")
    page.write_text(f"{before}{START}\n\n{tables}\n{END}{after}")
    report = folder / EXPERIMENT / "report"
    if report.is_dir():
        shutil.copytree(report, docs / "results" / EXPERIMENT, dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    tables = markdown(options.folder)
    (options.folder / "results.md").write_text(tables)
    if options.docs is not None:
        write_docs(options.folder, options.docs, tables)


if __name__ == "__main__":
    main()
