"""`posenc status`: how every run of an experiment stands, read from the disk alone."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from posenc.record.files import read_json
from posenc.record.rundir import RunDirectory, runs_of
from posenc.record.status import Status
from posenc.sweep.progress import clock, percent, rate

STYLES = {
    "pending": "dim",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "finished": "green",
}


def expected_runs(folder: Path) -> list[RunDirectory]:
    """The runs of an experiment's folder: as planned, in that order, then what else is there."""
    planned = _plan(folder).get("runs", [])
    others = [run.name for run in runs_of(folder) if run.name not in planned]
    return [RunDirectory(folder / name) for name in [*planned, *others]]


def status_table(runs: Sequence[RunDirectory], console: Console) -> None:
    """Print how an experiment's runs stand, and the command that finishes what is open."""
    statuses = {run.name: run.status() for run in runs}
    console.print(_table(statuses))
    for name, status in statuses.items():
        if status.error and status.state in ("failed", "interrupted"):
            line = f"{name} {status.state}: {status.error}"
            console.print(Text(line, STYLES[status.state]), soft_wrap=True)
    states = [status.state for status in statuses.values()]
    counts = [f"{states.count(state)} {state}" for state in STYLES if state in states]
    console.print(Text(f"{len(states)} run{'s' * (len(states) != 1)}: {', '.join(counts)}"))
    if runs and (command := _finishing(runs[0].path.parent, states)):
        console.print(Text(f"to finish: {command}"), soft_wrap=True)


def status_json(runs: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Every run's name, path and status, and the seconds left where it is running."""
    return [_entry(run, run.status()) for run in runs]


def _entry(run: RunDirectory, status: Status) -> dict[str, Any]:
    return {"run": run.name, "path": str(run.path), **asdict(status), "left": _left(status)}


def _table(statuses: dict[str, Status]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("run", no_wrap=True, min_width=20)
    for name in ("state", "phase"):
        table.add_column(name, no_wrap=True)
    for name in ("done", "tokens/s", "left", "updated"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, status in statuses.items():
        table.add_row(Text(name), *_cells(status))
    return table


def _cells(status: Status) -> list[Text | str]:
    running = status.state == "running"
    ago = None if status.updated is None else time.time() - status.updated
    return [
        Text(status.state, STYLES[status.state]),
        status.phase if running else "",
        percent(status.work_done),
        rate(status.tokens_per_second) if running else "",
        clock(_left(status)) if running else "",
        "" if ago is None else f"{clock(ago)} ago",
    ]


def _left(status: Status) -> float | None:
    """Seconds left of a running run, at its pace over all its starts."""
    if status.state != "running" or not status.work_done:
        return None
    return status.seconds * (1 - status.work_done) / status.work_done


def _finishing(folder: Path, states: Sequence[str]) -> str | None:
    """The command that runs what is open; None where nothing is, or no plan tells."""
    command = _plan(folder).get("command")
    again = " retry=true" if "failed" in states and "retry=" not in (command or "") else ""
    return f"{command}{again}" if command and set(states) - {"finished"} else None


def _plan(folder: Path) -> dict[str, Any]:
    file = folder / "plan.json"
    return read_json(file) if file.exists() else {}
