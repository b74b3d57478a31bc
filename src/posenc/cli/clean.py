"""`posenc clean`: delete selected runs."""

from dataclasses import replace
from functools import partial
from typing import get_args

from posenc.cli.arguments import FOLDER_KEYS, Arguments
from posenc.cli.command_setup import experiment_folder
from posenc.config.console import Console
from posenc.config.errors import ConfigError, RunError, did_you_mean, plural
from posenc.config.overrides import command_line_axes, override_key
from posenc.runs.delete_run import remove_run, run_paths, total_bytes
from posenc.runs.run_directory import RunDirectory, list_runs, open_run
from posenc.runs.status import State, Status

DELETABLE_STATES = [state for state in get_args(State) if state != "running"]


def run(arguments: Arguments) -> int:
    print_line = partial(Console(highlight=False).print, soft_wrap=True)
    runs = _select_runs(arguments)
    sizes: dict[RunDirectory, int] = {}
    by_state = not any(override_key(override) == "run" for override in arguments.overrides)
    problems = {run: _status_problem(run) if by_state else None for run in runs}
    for run, problem in problems.items():
        if problem:
            remedy = f"to delete the run anyway, select it with run={run.path}"
            print_line(f"{run.path}  skipped: {problem}; {remedy}")
    runs = [run for run, problem in problems.items() if problem is None]
    skipped = len(problems) - len(runs)
    for run in runs:
        try:
            sizes[run] = total_bytes(run_paths(run))
        except RunError as error:
            if len(runs) == 1:
                raise
            skipped += 1
            print_line(f"{run.path}  skipped: {error}; delete the folder yourself")
        else:
            print_line(f"{run.path}  {sizes[run] / 1e6:.1f} MB")
    summary = f"{plural(len(sizes), 'run')}, {sum(sizes.values()) / 1e6:.1f} MB"
    if "--yes" not in arguments.flags:
        print_line(f"{summary}: dry run; add --yes to delete")
        return int(skipped > 0)
    for run in sizes:
        remove_run(run)
    print_line(f"{summary} deleted")
    return int(skipped > 0)


def _status_problem(run: RunDirectory) -> str | None:
    """Return why a run's state is unknown, or None; such a run is kept, so that nothing is lost."""
    if not run.status_file.exists():
        return "it has results, but no status.json" if run.has_results() else None
    try:
        Status.load(run.status_file)
    except RunError as error:
        return str(error)
    return None


def _select_runs(arguments: Arguments) -> list[RunDirectory]:
    axes = command_line_axes(arguments.overrides)
    values = {a.key: [str(setting.plain) for setting in a.settings] for a in axes}
    folder_keys = [key for key in values if key in FOLDER_KEYS]
    if unknown := [key for key in values if key not in ("run", "state", *FOLDER_KEYS)]:
        available = ", ".join(("run", "state", *FOLDER_KEYS))
        raise ConfigError(f"unknown key {unknown[0]} (available: {available})")
    if "run" in values and len(values) == 1:
        return [open_run(path) for path in dict.fromkeys(values["run"])]
    if "run" in values:
        others = ", ".join(key for key in values if key != "run")
        raise ConfigError(f"run=PATH selects the runs, so it cannot be combined with {others}")
    if "state" not in values or not folder_keys:
        raise ConfigError("no runs selected; set run=PATH, or name=NAME and state=STATE")
    for state in values["state"]:
        if state not in DELETABLE_STATES:
            hint = did_you_mean(state, DELETABLE_STATES)
            available = ", ".join(DELETABLE_STATES)
            raise ConfigError(f"unknown state={state}{hint} (available: {available})")
    without_state = [o for o in arguments.overrides if o.partition("=")[0] != "state"]
    folder = experiment_folder(replace(arguments, overrides=tuple(without_state)))
    return [run for run in list_runs(folder) if run.status().state in values["state"]]
