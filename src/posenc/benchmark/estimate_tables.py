"""Estimates as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from posenc.benchmark.estimate import Estimate, Machine
from posenc.sweeps.progress import clock

COLUMNS = ("encoding", "L", "seed", "parameters", "in blocks", "memory", "FLOPs", "time")


def show(estimates: Sequence[Estimate], machine: Machine, console: Console) -> None:
    """A row for each run, totals, and what the numbers leave out."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "encoding" else "right", no_wrap=True)
    for run in estimates:
        table.add_row(
            run.encoding,
            str(run.train_length),
            str(run.seed),
            _short(run.parameters),
            _short(run.without_embeddings),
            f"{'≥ ' * run.least_memory}{_short(run.memory.peak())}B",
            f"{run.flops:.1e}",
            clock(run.seconds),
        )
    console.print(table)
    _parts(max(estimates, key=lambda run: run.memory.peak()), console)
    total = totals(estimates, machine)
    slowest = min(run.rate for run in estimates)
    lines = [
        f"{len(estimates)} runs, {total['flops']:.2e} FLOPs at {slowest:.2g} FLOP/s a device"
        f" or more: {total['device_seconds'] / 3600:.3g} device hours",
        f"time: {clock(total['seconds'])}, {machine.at_once} at a time with"
        f" devices={estimates[0].devices} each",
    ]
    for line in lines:
        console.print(line, highlight=False)
    for note in _notes(estimates, machine):
        console.print(note, highlight=False)


def as_json(estimates: Sequence[Estimate], machine: Machine) -> dict[str, Any]:
    """Every run's numbers, its peak and its seconds, and the totals."""
    runs = [
        {**asdict(run), "peak_memory": run.memory.peak(), "seconds": run.seconds}
        for run in estimates
    ]
    return {"runs": runs, "total": totals(estimates, machine)}


def totals(estimates: Sequence[Estimate], machine: Machine) -> dict[str, float]:
    """Operations, seconds of devices, and seconds with as many runs at a time as there may be."""
    seconds = sum(run.seconds for run in estimates)
    longest = max(run.seconds for run in estimates)
    return {
        "flops": sum(run.flops for run in estimates),
        "device_seconds": sum(run.seconds * run.devices for run in estimates),
        "seconds": max(longest, seconds / machine.at_once),
    }


def _parts(run: Estimate, console: Console) -> None:
    """What the largest memory consists of."""
    names = ["weights", "gradients", "optimizer", "activations", "logits"]
    names += ["process"] * (run.memory.process > 0)
    parts = [f"{name} {_short(getattr(run.memory, name))}B" for name in names]
    line = f"largest memory, {run.encoding} L={run.train_length}: {', '.join(parts)}"
    console.print(line, highlight=False)


def _notes(estimates: Sequence[Estimate], machine: Machine) -> list[str]:
    notes = []
    if not all(run.evaluated for run in estimates):
        notes.append("evaluation is not counted where the data are not prepared yet")
    if any(run.least_memory for run in estimates):
        notes.append("≥: without what the encoding itself holds, which only running it tells")
    tight = [run for run in estimates if run.memory.peak() > (machine.memory or float("inf"))]
    if tight:
        notes.append(
            f"{len(tight)} runs do not fit into {_short(machine.memory or 0)}B;"
            f" give a smaller micro_batch_tokens or more devices"
        )
    return notes


def _short(number: float) -> str:
    """Three digits and a letter: 247M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"
