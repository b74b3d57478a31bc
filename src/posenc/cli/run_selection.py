"""Selection of runs by path, by a unique prefix of the name, or by filters within an experiment."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posenc.cli.arguments import FILTER_KEYS, FOLDER_KEYS, Arguments
from posenc.cli.command_setup import experiment_folder, outputs_folder
from posenc.config.errors import ConfigError, RunError
from posenc.config.overrides import command_line_axes, override_key, to_override_value
from posenc.config.paths import OUTPUTS, experiment_command
from posenc.runs.run_directory import (
    RunDirectory,
    SelectRuns,
    ambiguous_run_error,
    find_run,
    join_first,
    list_runs,
    open_run,
)

Filters = Mapping[str, set[str | None]]
"""The allowed values of each filter key, as JSON."""


def _search_run(path: Any, arguments: Arguments, folder_overrides: Sequence[str]) -> RunDirectory:
    """Return the run that `path`, a path or a unique prefix of a name, selects.

    Looks in the experiment that `folder_overrides` select or, if they select none, in all
    experiments of the outputs folder. Raises ConfigError as `find_run` does.
    """
    arguments = replace(arguments, overrides=tuple(folder_overrides))
    if all(override_key(override) == "outputs_dir" for override in folder_overrides):
        return find_run(path, outputs_folder(arguments) if folder_overrides else OUTPUTS)
    folder = experiment_folder(arguments)
    return _find_in_folder(path, list_runs(folder), folder)


def _find_in_folder(path: Any, runs: Sequence[RunDirectory], folder: Path) -> RunDirectory:
    """Return the run of an experiment whose path, name or unique name prefix is `path`."""
    if not isinstance(path, str):
        return open_run(path)  # raises ConfigError
    resolved = Path(os.path.realpath(os.path.expanduser(path)))
    at_path = [run for run in runs if run.path.resolve() == resolved]
    matches = at_path or [run for run in runs if run.name.startswith(path)]
    exact = [run for run in matches if run.name == path]
    if len(matches) > 1 and not exact:
        raise ambiguous_run_error(path, [run.name for run in matches])
    if not matches:
        names = join_first([run.name for run in runs])
        raise ConfigError(f"run={path}: no run in {folder} has this prefix (its runs: {names})")
    return (exact or matches)[0]


def select_runs(arguments: Arguments) -> list[str]:
    """Return the overrides, with an experiment and filters replaced by `run=PATH,...`.

    If `run` is also set, its values are looked up only among the runs of the experiment. Raises
    ConfigError if there is no such run, if `run` is combined with filters, or if no finished run of
    the experiment matches the filters.
    """
    folder_overrides = [o for o in arguments.overrides if override_key(o) in FOLDER_KEYS]
    if not folder_overrides:
        return list(arguments.overrides)
    filters, others = split_filters(arguments.overrides)
    if "run" in map(override_key, others):
        _reject_filters(filters)
        runs = [_search_run(value, arguments, folder_overrides) for value in _run_values(others)]
    else:
        folder = experiment_folder(replace(arguments, overrides=tuple(folder_overrides)))
        finished = [run for run in list_runs(folder) if run.status().state == "finished"]
        if not finished:
            command = experiment_command("status", folder)
            raise ConfigError(f"{folder} has no finished runs; see `{command}`")
        runs = filter_runs(finished, filters)
    kept = [o for o in others if override_key(o) not in (*FOLDER_KEYS, "run")]
    paths = ",".join(to_override_value(str(run.path), "run") for run in runs)
    return [*kept, f"run={paths}"]


def select_one_run(arguments: Arguments) -> Arguments:
    """Return the arguments with `run=PATH` in place of an experiment and filters.

    Raises ConfigError as `select_runs` does, and if several runs are selected.
    """
    overrides = select_runs(arguments)
    paths = list(map(str, _run_values(overrides)))
    if len(paths) > 1:
        raise ConfigError(
            f"posenc {arguments.command} takes one run, but {len(paths)} are selected"
            f" ({join_first(paths)}); set run=PREFIX or more filters ({', '.join(FILTER_KEYS)})"
        )
    return replace(arguments, overrides=tuple(overrides))


def select_in_folder(arguments: Arguments) -> tuple[Path, SelectRuns | None]:
    """Return a folder of runs, and a function that selects some of them, or None for all.

    With `run=` (a path or a unique prefix of a name), the function selects that run, and the folder
    is the run's parent folder. If an experiment is also set, only its runs are searched; if only
    `outputs_dir` is set, those of all its experiments. Without `run=`, the function selects the
    runs that match the filters.
    """
    filters, others = split_filters(arguments.overrides)
    if any(override_key(override) == "run" for override in others):
        folder_overrides = [override for override in others if override_key(override) != "run"]
        _reject_filters(filters)
        values = _run_values(others)
        if len(values) > 1:
            raise ConfigError("run selects a single run; use name=NAME with filters for several")
        run = _search_run(values[0], arguments, folder_overrides)
        path = run.path.resolve()
        return run.path.parent, lambda runs: [r for r in runs if r.path.resolve() == path]
    folder = experiment_folder(replace(arguments, overrides=tuple(others)))
    return folder, (lambda runs: filter_runs(runs, filters)) if filters else None


def _reject_filters(filters: Filters) -> None:
    """Raise ConfigError if filters are combined with `run`."""
    if filters:
        raise ConfigError(f"run cannot be combined with filters; omit {', '.join(filters)}")


def _run_values(overrides: Sequence[str]) -> list[Any]:
    """Return the values of the key `run`."""
    axes = command_line_axes([o for o in overrides if override_key(o) == "run"])
    return [setting.plain for axis in axes for setting in axis.settings]


def split_filters(overrides: Sequence[str]) -> tuple[Filters, list[str]]:
    """Return the filters among the overrides, and the other overrides."""
    selected = [override for override in overrides if override_key(override) in FILTER_KEYS]
    axes = command_line_axes(selected)
    filters = {axis.key: {setting.value for setting in axis.settings} for axis in axes}
    return filters, [override for override in overrides if override not in selected]


def filter_runs(runs: Sequence[RunDirectory], filters: Filters) -> list[RunDirectory]:
    """Return the runs that match all filters. Raises ConfigError if there are none."""
    if not filters:
        return list(runs)
    values = {run.path: _values(run) for run in runs}
    selected = [
        run
        for run in runs
        if all(values[run.path].get(key) in allowed for key, allowed in filters.items())
    ]
    if not selected:
        existing = {key: {run[key] for run in values.values() if run} for key in filters}
        listed = "; ".join(f"{key}={','.join(sorted(v))}" for key, v in existing.items() if v)
        reason = f"the runs have {listed}" if listed else "none has a readable configuration"
        raise ConfigError(f"no run has the requested values ({reason})")
    return selected


def _values(run: RunDirectory) -> dict[str, str]:
    """Return a run's values of the filter keys, as JSON; {} if its configuration is corrupt."""
    try:
        config = run.config()
    except RunError:
        return {}
    values = {**config, "encoding": config.choices.encoding}
    return {key: json.dumps(values[key]) for key in FILTER_KEYS}
