"""The table and the JSON output of `posenc status`, built from the run directories."""

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from posenc.config.errors import plural
from posenc.config.overrides import to_override_value
from posenc.config.paths import experiment_command
from posenc.runs.plan_file import is_withheld, quoted_command, read_plan, with_overrides
from posenc.runs.run_directory import RunDirectory, list_runs
from posenc.runs.status import Status
from posenc.sweeps.progress import format_duration, format_percent, format_rate, run_table
from posenc.tracking.mirror_file import wandb_is_complete

STYLES = {
    "pending": "dim",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "finished": "green",
}
WITHHELD_COMMAND = (
    'to finish: see "commands" in {file}; they are not printed because they may run code or write'
    " to other folders, and there is no record that you have run them in the current directory"
)


def all_runs(folder: Path) -> list[RunDirectory]:
    """Return the planned runs of an experiment in planned order, then other runs in its folder."""
    planned = read_plan(folder)["runs"]
    others = [run for run in list_runs(folder) if run.name not in planned]
    return [*(RunDirectory(folder / name) for name in planned), *others]


def status_table(runs: Sequence[RunDirectory]) -> Group:
    """Return a table of the runs' statuses, with their errors and the commands to finish them."""
    statuses = {run.name: run.status() for run in runs}
    errors = [
        Text(f"{name} {status.state}: {status.error}", STYLES[status.state])
        for name, status in statuses.items()
        if status.error and status.state in ("failed", "interrupted")
    ]
    states = [status.state for status in statuses.values()]
    counts = [f"{states.count(state)} {state}" for state in STYLES if state in states]
    total = Text(f"{plural(len(states), 'run')}: {', '.join(counts)}")
    commands = _commands_to_finish(runs, statuses)
    return Group(_table(statuses), *errors, total, *commands, *_incomplete_copies(runs, statuses))


def _commands_to_finish(runs: Sequence[RunDirectory], statuses: Mapping[str, Status]) -> list[Text]:
    """Return a line for each distinct command that finishes runs, and one if any is withheld."""
    if not runs:
        return []
    folder = runs[0].path.parent
    plan = read_plan(folder)
    states_by_command: dict[str, set[str]] = {}
    for run in runs:
        if (state := statuses[run.name].state) != "finished":
            states_by_command.setdefault(_saved_command(plan, run), set()).add(state)
    lines = [
        Text(f"to finish: {command}")
        for saved, states in states_by_command.items()
        if (command := _command_to_finish(plan, folder, saved, states))
    ]
    if any(map(is_withheld, states_by_command)):
        lines.append(Text(WITHHELD_COMMAND.format(file=folder / "plan.json")))
    return lines


def status_json(runs: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Return the name, path, status and time left of each run, and the command to finish it.

    `wandb_complete` is null if the run was not logged to W&B.
    """
    if not runs:
        return []
    folder = runs[0].path.parent
    plan = read_plan(folder)
    return [
        {
            "run": run.name,
            "path": str(run.path),
            **asdict(status),
            "seconds_left": _seconds_left(status),
            "wandb_complete": wandb_is_complete(run),
            "command": _command_to_finish(plan, folder, _saved_command(plan, run), {status.state}),
        }
        for run, status in ((run, run.status()) for run in runs)
    ]


def _incomplete_copies(runs: Sequence[RunDirectory], statuses: Mapping[str, Status]) -> list[Text]:
    """Return a line that lists the ended runs whose W&B copies are incomplete, if there are any."""
    names = [
        run.name for run in runs if statuses[run.name].has_ended and wandb_is_complete(run) is False
    ]
    if not names:
        return []
    command = experiment_command("sync", runs[0].path.parent)
    return [
        Text(
            f"incomplete in W&B: {', '.join(names)} ({command} uploads the missing rows, and"
            f" {command} --offline recreates the offline files)"
        )
    ]


def _table(statuses: dict[str, Status]) -> Table:
    table = run_table(("state", "phase"), ("done", "tokens/s", "left", "updated"))
    for name, status in statuses.items():
        running = status.state == "running"
        age = None if status.updated is None else max(0.0, time.time() - status.updated)
        table.add_row(
            Text(name),
            Text(status.state, STYLES[status.state]),
            status.phase if running else "",
            format_percent(status.work_done),
            format_rate(status.tokens_per_second) if running else "",
            format_duration(_seconds_left(status)) if running else "",
            "" if age is None else f"{format_duration(age)} ago",
        )
    return table


def _seconds_left(status: Status) -> float | None:
    """Estimate the seconds until an active run ends, from its average pace so far."""
    if status.state != "running" or not status.work_done:
        return None
    return status.seconds * (1 - status.work_done) / status.work_done


def _saved_command(plan: Mapping[str, Any], run: RunDirectory) -> str:
    """Return the command in a plan that trains a run; "" if there is none."""
    return plan["commands"].get(run.name, plan.get("command")) or ""


def _command_to_finish(
    plan: Mapping[str, Any], folder: Path, saved: str, states: Collection[str]
) -> str | None:
    """Return a saved command, with retry=true if runs failed, and name= if the folder was renamed.

    Returns None if all runs are finished or the command is withheld.
    """
    if set(states) == {"finished"}:
        return None
    overrides = {"retry": "true"} if "failed" in states else {}
    if plan.get("name") not in (None, folder.name):
        overrides["name"] = to_override_value(folder.name, "name")
    command = quoted_command(saved)
    return command and shlex.join(with_overrides(command, overrides))
