"""`posenc status`: how every run of an experiment stands, read from the disk alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from posenc.runs.files import read_json
from posenc.runs.run_directory import RunDirectory, runs_of
from posenc.runs.status import Status
from posenc.sweeps.progress import clock, percent, rate

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


def is_open(run: RunDirectory) -> bool:
    """Whether it may still change by itself or under the same command."""
    return run.status().state not in ("finished", "failed")


def status_shown(runs: Sequence[RunDirectory]) -> Group:
    """How an experiment's runs stand, their errors, and the commands that finish what is open."""
    statuses = {run.name: run.status() for run in runs}
    errors = [
        Text(f"{name} {status.state}: {status.error}", STYLES[status.state])
        for name, status in statuses.items()
        if status.error and status.state in ("failed", "interrupted")
    ]
    states = [status.state for status in statuses.values()]
    counts = [f"{states.count(state)} {state}" for state in STYLES if state in states]
    total = Text(f"{len(states)} run{'s' * (len(states) != 1)}: {', '.join(counts)}")
    commands = [Text(f"to finish: {command}") for command in _finishing(runs, statuses)]
    return Group(_table(statuses), *errors, total, *commands)


def status_json(runs: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Every run's name, path and status, the seconds left where it is running, and the command that
    would finish it where it is not finished."""
    return [_entry(run, run.status()) for run in runs]


def _entry(run: RunDirectory, status: Status) -> dict[str, Any]:
    commands = _finishing([run], {run.name: status})
    return {
        "run": run.name,
        "path": str(run.path),
        **asdict(status),
        "left": _left(status),
        "command": commands[0] if commands else None,
    }


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
        "" if ago is None else f"{clock(max(0.0, ago))} ago",
    ]


def _left(status: Status) -> float | None:
    """Seconds left of a running run, at its pace over all its starts."""
    if status.state != "running" or not status.work_done:
        return None
    return status.seconds * (1 - status.work_done) / status.work_done


def _finishing(runs: Sequence[RunDirectory], statuses: Mapping[str, Status]) -> list[str]:
    """The commands, each once, that run what is not finished, as far as a plan tells."""
    open_runs = [run for run in runs if statuses[run.name].state != "finished"]
    plans = {folder: _plan(folder) for folder in {run.path.parent for run in open_runs}}
    needed: dict[str, set[str]] = {}
    for run in open_runs:
        plan = plans[run.path.parent]
        if command := plan.get("commands", {}).get(run.name, plan.get("command")):
            needed.setdefault(command, set()).add(statuses[run.name].state)
    return [
        f"{command} retry=true" if "failed" in states and "retry=" not in command else command
        for command, states in needed.items()
    ]


def _plan(folder: Path) -> dict[str, Any]:
    file = folder / "plan.json"
    return read_json(file) if file.exists() else {}
