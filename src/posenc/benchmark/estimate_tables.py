"""Estimates as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from posenc.benchmark.estimate import Estimate, Machine
from posenc.report.table import Column, Table
from posenc.sweeps.progress import format_duration

MEMORY_PARTS = ("weights", "gradients", "optimizer", "activations", "logits", "process")
PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def print_estimates(estimates: Sequence[Estimate], machine: Machine, console: Console) -> None:
    """Print a row for each run, the totals, and what the numbers leave out."""
    console.print(estimate_table(estimates))
    totals = total_cost(estimates, machine)
    slowest = min(run.rate for run in estimates)
    lines = [
        _largest_memory(max(estimates, key=lambda run: run.memory.peak())),
        f"{len(estimates)} runs, {totals['flops']:.2e} FLOPs at {slowest:.2g} FLOP/s or more per"
        f" device: {totals['device_seconds'] / 3600:.3g} device hours",
        f"time: {format_duration(totals['seconds'])} (concurrent runs:"
        f" {machine.concurrent_runs}, devices per run: {estimates[0].devices})",
        *_notes(estimates, machine),
    ]
    for line in lines:
        console.print(line, highlight=False)


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    columns = [
        Column("encoding", align="left"),
        *map(Column, ("L", "seed")),
        Column("parameters", format=_short),
        Column("in blocks", format=_short),
        Column("memory"),
        Column("FLOPs", format=".1e"),
        Column("time", format=format_duration),
    ]
    rows = [
        [
            run.encoding,
            run.train_length,
            run.seed,
            run.parameters,
            run.without_embeddings,
            f"{'≥ ' * run.memory_is_lower_bound}{_short(run.memory.peak())}B",
            run.flops,
            run.seconds,
        ]
        for run in estimates
    ]
    return Table("", columns, rows, keys=3)


def as_json(estimates: Sequence[Estimate], machine: Machine) -> dict[str, Any]:
    """Return the numbers of every run and the totals."""
    runs = [
        {**asdict(run), "peak_memory": run.memory.peak(), "seconds": run.seconds}
        for run in estimates
    ]
    return {"runs": runs, "total": total_cost(estimates, machine)}


def total_cost(estimates: Sequence[Estimate], machine: Machine) -> dict[str, float]:
    """Return FLOPs, device seconds, and seconds with the machine's number of concurrent runs."""
    seconds = sum(run.seconds for run in estimates)
    longest = max(run.seconds for run in estimates)
    return {
        "flops": sum(run.flops for run in estimates),
        "device_seconds": sum(run.seconds * run.devices for run in estimates),
        "seconds": max(longest, seconds / machine.concurrent_runs),
    }


def _largest_memory(run: Estimate) -> str:
    sizes = {name: getattr(run.memory, name) for name in MEMORY_PARTS}
    parts = ", ".join(f"{name} {_short(size)}B" for name, size in sizes.items() if size)
    return f"largest memory ({run.encoding}, L={run.train_length}): {parts}"


def _notes(estimates: Sequence[Estimate], machine: Machine) -> list[str]:
    notes = []
    if not all(run.includes_evaluation for run in estimates):
        notes.append("evaluation is not included where the data have not been prepared")
    if any(run.memory_is_lower_bound for run in estimates):
        notes.append("≥: lower bound, without the encoding's own activations")
    capacity = machine.memory or float("inf")
    if too_large := [run for run in estimates if run.memory.peak() > capacity]:
        notes.append(
            f"{len(too_large)} runs exceed the {_short(capacity)}B of a device;"
            f" reduce micro_batch_tokens or increase devices"
        )
    return notes


def _short(number: float) -> str:
    """Return three digits with a prefix, as 247M."""
    for size, prefix in PREFIXES:
        if number >= size:
            return f"{number / size:.3g}{prefix}"
    return f"{number:.3g}"
