"""Prints estimates as a table, or returns them as JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from posenc.benchmark.estimate import Estimate
from posenc.benchmark.throughput import Machine
from posenc.config.errors import plural
from posenc.report.table import Column, Table
from posenc.sweeps.progress import format_duration


def print_estimates(estimates: Sequence[Estimate], machine: Machine, console: Console) -> None:
    """Print a row for each run, the totals, and notes."""
    console.print(estimate_table(estimates))
    totals = total_cost(estimates, machine)
    slowest = min(min(run.flops_per_second, run.evaluation_flops_per_second) for run in estimates)
    evaluation = ""
    if any(run.includes_evaluation for run in estimates):
        evaluation = f", of which {totals['evaluation_fraction']:.0%} is for evaluation"
    devices = " or ".join(map(str, sorted({run.devices for run in estimates})))
    lines = [
        _memory_breakdown(max(estimates, key=lambda run: run.memory.peak())),
        f"{plural(len(estimates), 'run')}, {_scientific(totals['flops'])} FLOPs at"
        f" {_scientific(slowest)} FLOP/s or more per device:"
        f" {totals['device_seconds'] / 3600:.3g} device hours{evaluation}",
        f"time: {format_duration(totals['seconds'])} (concurrent runs:"
        f" {machine.concurrent_runs}, devices per run: {devices})",
        *_notes(estimates, machine),
    ]
    for line in lines:
        console.print(line, highlight=False)


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    columns = [
        Column("encoding", align="left"),
        *map(Column, ("L", "seed")),
        Column("params", format=_with_si_prefix),
        Column("memory"),
        Column("FLOPs", format=_scientific),
        Column("training", format=format_duration),
        Column("eval", format=format_duration),
    ]
    rows = [
        [
            run.label,
            run.train_length,
            run.seed,
            run.parameters,
            f"{'≥ ' * run.memory_is_lower_bound}{_with_si_prefix(run.memory.peak())}B",
            run.flops,
            run.training_seconds,
            run.evaluation_seconds if run.includes_evaluation else None,
        ]
        for run in estimates
    ]
    return Table("", columns, rows, key_columns=3)


def to_dict(estimates: Sequence[Estimate], machine: Machine) -> dict[str, Any]:
    """Return the estimate of every run and the totals."""
    computed = "flops", "training_seconds", "evaluation_seconds", "seconds"
    runs = [
        {
            **asdict(run),
            "peak_memory": run.memory.peak(),
            **{name: getattr(run, name) for name in computed},
        }
        for run in estimates
    ]
    return {"runs": runs, "total": total_cost(estimates, machine)}


def total_cost(estimates: Sequence[Estimate], machine: Machine) -> dict[str, float]:
    """Return the total FLOPs, device seconds, and wall-clock seconds on the machine.

    `evaluation_fraction` is the fraction of the device seconds that evaluation takes.
    """
    seconds = sum(run.seconds for run in estimates)
    device_seconds = sum(run.seconds * run.devices for run in estimates)
    evaluation = sum(run.evaluation_seconds * run.devices for run in estimates)
    longest = max(run.seconds for run in estimates)
    return {
        "flops": sum(run.flops for run in estimates),
        "device_seconds": device_seconds,
        "seconds": max(longest, seconds / machine.concurrent_runs),
        "evaluation_fraction": evaluation / device_seconds,
    }


def _memory_breakdown(run: Estimate) -> str:
    parts = ", ".join(
        f"{name.removesuffix('_bytes')} {_with_si_prefix(size)}B"
        for name, size in asdict(run.memory).items()
        if size and name not in ("layers", "accumulates")
    )
    return f"highest peak memory ({run.label}, L={run.train_length}): {parts}"


def _notes(estimates: Sequence[Estimate], machine: Machine) -> list[str]:
    sizes = sorted({run.vocab_size for run in estimates})
    notes = [
        f"non-embedding parameters: {_range([run.non_embedding_parameters for run in estimates])}",
        f"vocabulary: {' or '.join(f'{size:,}' for size in sizes)} tokens",
    ]
    notes.append(f"torch.compile: {_compile_choices(estimates)}")
    if not all(run.includes_evaluation for run in estimates):
        notes.append("evaluation on data of unknown size is excluded until the data is prepared")
    if any(run.includes_evaluation and not run.data_is_prepared for run in estimates):
        notes.append("evaluation is approximate until the data is prepared")
    if any(run.memory_is_lower_bound for run in estimates):
        notes.append("≥: lower bound, excluding the encoding's own activations")
    capacity = machine.memory or float("inf")
    if too_large := [run for run in estimates if run.memory.peak() > capacity]:
        notes.append(
            f"peak memory exceeds the device's {_with_si_prefix(capacity)}B for"
            f" {plural(len(too_large), 'run')}; reduce micro_batch_tokens or increase devices"
        )
    return notes


def _compile_choices(estimates: Sequence[Estimate]) -> str:
    """Return whether runs are compiled and why, with the number of runs if the choices differ."""
    choices = Counter((run.compile, run.compile_reason) for run in estimates)
    texts = []
    for (enabled, reason), count in choices.items():
        runs = f" for {plural(count, 'run')}" if len(choices) > 1 else ""
        texts.append(f"{'yes' if enabled else 'no'} ({reason}){runs}")
    return ", ".join(texts)


def _range(values: Sequence[int]) -> str:
    """Return the smallest and the largest value, or one value if both are printed the same."""
    return " to ".join(dict.fromkeys(map(_with_si_prefix, (min(values), max(values)))))


def _with_si_prefix(number: float) -> str:
    """Format with three significant digits and an SI prefix, e.g. 247M."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if float(f"{number:.3g}") >= size:
            return f"{number / size:.3g}{prefix}"
    return f"{number:.3g}"


def _scientific(number: float) -> str:
    """Format with two significant digits, e.g. 1.1e15."""
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
