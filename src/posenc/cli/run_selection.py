"""Selection of runs by path, by a unique prefix of the name, or by filters on an experiment."""

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posenc.cli.arguments import FILTER_KEYS, FOLDER_KEYS, Arguments
from posenc.cli.targets import experiment_folder
from posenc.config.errors import ConfigError, RunError
from posenc.config.overrides import command_line_axes, override_key, to_override_value
from posenc.config.paths import OUTPUTS, experiment_arguments
from posenc.report.experiment import SelectRuns
from posenc.runs.run_directory import RunDirectory, list_runs, open_run

MAX_LISTED = 5

Filters = Mapping[str, set[str | None]]
"""The allowed values of each filter key, as JSON."""


def find_run(path: Any) -> RunDirectory:
    """Return the run at `path`, or the only run whose path or name starts with `path`.

    Names are searched in the folders of `outputs/`. Raises ConfigError if there is no such run, or
    more than one.
    """
    if not isinstance(path, str) or (Path(path) / "config.yaml").is_file():
        return open_run(path)
    prefix = glob.escape(str(Path(path)))
    patterns = (prefix, f"{OUTPUTS}/{prefix}", f"{OUTPUTS}/*/{prefix}")
    files = {name for pattern in patterns for name in glob.glob(f"{pattern}*/config.yaml")}
    matches = sorted(str(Path(file).parent) for file in files)
    if len(matches) > 1:
        listed = ", ".join(matches[:MAX_LISTED]) + ", ..." * (len(matches) > MAX_LISTED)
        raise ConfigError(f"run={path} matches {len(matches)} runs ({listed}); specify one")
    return open_run(matches[0] if matches else path)


def select_runs(arguments: Arguments) -> list[str]:
    """Return the overrides, with an experiment and filters replaced by `run=PATH,...`.

    Raises ConfigError if the filters match no finished run of the experiment, or if `run` is also
    set.
    """
    folder_keys = [o for o in arguments.overrides if override_key(o) in FOLDER_KEYS]
    if not folder_keys:
        return list(arguments.overrides)
    filters, others = split_filters(arguments.overrides)
    if "run" in map(override_key, others):
        raise ConfigError(f"run and {override_key(folder_keys[0])} are mutually exclusive; set one")
    folder = experiment_folder(replace(arguments, overrides=tuple(folder_keys)))
    finished = [run for run in list_runs(folder) if run.status().state == "finished"]
    if not finished:
        command = f"posenc status {experiment_arguments(folder)}"
        raise ConfigError(f"{folder} has no finished runs; see `{command}`")
    paths = [to_override_value(str(run.path), "run") for run in filter_runs(finished, filters)]
    kept = [override for override in others if override not in folder_keys]
    return [*kept, f"run={','.join(paths)}"]


def select_in_folder(arguments: Arguments) -> tuple[Path, SelectRuns | None]:
    """Return a folder of runs, and a function that selects some of them, or None for all.

    With `run=` (a path or a unique prefix of a name), the function selects that run, and the folder
    is the run's parent folder. Otherwise, the function selects the runs that match the filters.
    """
    filters, others = split_filters(arguments.overrides)
    if any(override_key(override) == "run" for override in others):
        if len(arguments.overrides) > 1:
            raise ConfigError("run selects a single run; omit all other keys")
        (axis,) = command_line_axes(others)
        if len(axis.settings) > 1:
            raise ConfigError("run selects a single run; use name=NAME with filters for several")
        run = find_run(json.loads(axis.settings[0].value or "null"))
        path = run.path.resolve()
        return run.path.parent, lambda runs: [r for r in runs if r.path.resolve() == path]
    folder = experiment_folder(replace(arguments, overrides=tuple(others)))
    return folder, (lambda runs: filter_runs(runs, filters)) if filters else None


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
        listed = "; ".join(f"{key}={','.join(sorted(v))}" for key, v in existing.items())
        raise ConfigError(f"no run has the requested values (the runs have {listed})")
    return selected


def _values(run: RunDirectory) -> dict[str, str]:
    """Return a run's values of the filter keys, as JSON; {} if its configuration is damaged."""
    try:
        config = run.config()
    except RunError:
        return {}
    values = {**config, "encoding": config.choices.encoding}
    return {key: json.dumps(values[key]) for key in FILTER_KEYS}
