"""Compares the kernels that were measured for the same encoding, length and pass."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from posenc.benchmark.bench_results import Row
from posenc.report.table import Column, Table

NOTE = (
    "The fastest kernel has the lowest median time. Numbers are a kernel's time divided by that of"
    " the fastest kernel, as medians over the rounds. If auto is not the fastest, request the"
    " fastest kernel by name; the table AUTO in posenc/attention/choice.py determines what auto"
    " uses."
)


def compare_kernels(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return a record for each encoding, length and pass that was measured with several kernels.

    A record has the setup, the `fastest` kernel, and each kernel's time relative to the fastest
    (the median ratio over the rounds, or None if the kernel was not measured).
    """
    groups: dict[tuple[int, str, str], dict[str, Row]] = {}
    for row in rows:
        key = row["length"], row["pass"], row["encoding"]
        groups.setdefault(key, {})[row["kernels_used"]] = row
    kernels = list(dict.fromkeys(row["kernels_used"] for row in rows))
    return [_record(group, kernels) for group in groups.values() if len(group) > 1]


def _record(group: Mapping[str, Row], kernels: Sequence[str]) -> dict[str, Any]:
    fastest = min(group.values(), key=lambda row: row["milliseconds"])
    ratios = {kernel: _ratio(row, fastest) for kernel, row in group.items()}
    model = fastest["model_config"]
    return {
        "device": fastest["device"],
        "precision": fastest["precision"],
        "head_width": model["width"] // model["heads"],
        "encoding": fastest["encoding"],
        "length": fastest["length"],
        "pass": fastest["pass"],
        "auto": fastest["auto_kernels"],
        "fastest": fastest["kernels_used"],
        "auto_over_fastest": ratios.get(fastest["auto_kernels"]),
        **{kernel: ratios.get(kernel) for kernel in kernels},
    }


def _ratio(row: Row, fastest: Row) -> float:
    pairs = zip(row["seconds"], fastest["seconds"], strict=True)
    return median(seconds / base for seconds, base in pairs)


def kernel_table(records: Sequence[dict[str, Any]]) -> Table:
    """Return the records as a table with a column for each kernel."""
    keys = [key for key in records[0] if key not in ("device", "precision", "head_width")]
    formats = {"length": "", "encoding": "", "pass": "", "auto": "", "fastest": ""}
    columns = [
        Column(
            key.replace("_over_", " / "),
            align="left" if key in formats and key != "length" else "right",
            format=formats.get(key, ".2f"),
        )
        for key in keys
    ]
    return Table("Kernels", columns, [[r[key] for key in keys] for r in records], [NOTE])
