"""`posenc clean`: remove the runs that are named, and nothing else."""

from dataclasses import replace
from typing import get_args

from hydra.core.override_parser.types import Override
from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.folder import KEYS, folder_of, run_directory
from posenc.config.compose import parse
from posenc.config.errors import ConfigError, did_you_mean
from posenc.runs.remove import belongings, remove, size
from posenc.runs.run_directory import RunDirectory, runs_of
from posenc.runs.status import State

STATES = [state for state in get_args(State) if state != "running"]


def run(arguments: Arguments) -> int:
    console = Console()
    runs = _named(arguments)
    sizes = {run.path: size(belongings(run)) for run in runs}
    for path, taken in sizes.items():
        console.print(f"{path}  {taken / 1e6:.1f} MB", highlight=False, soft_wrap=True)
    total = f"{len(runs)} run{'s' * (len(runs) != 1)}, {sum(sizes.values()) / 1e6:.1f} MB"
    if "--yes" not in arguments.flags:
        console.print(f"{total}: nothing is removed without --yes", highlight=False)
        return 0
    for each in runs:
        remove(each)
    console.print(f"{total} removed", highlight=False)
    return 0


def _named(arguments: Arguments) -> list[RunDirectory]:
    values = {o.key_or_group: _words(o) for o in parse(arguments.overrides)}
    folder_keys = [key for key in values if key in KEYS]
    if unknown := [key for key in values if key not in ("run", "state", *KEYS)]:
        there = ", ".join(("run", "state", *KEYS))
        raise ConfigError(f"{unknown[0]}: this command knows the keys {there}")
    if "run" in values and len(values) == 1:
        return [run_directory(path) for path in dict.fromkeys(values["run"])]
    if "run" in values or "state" not in values or not folder_keys:
        raise ConfigError("name what is to go: run=PATH alone, or name=NAME with state=STATE")
    for state in values["state"]:
        if state not in STATES:
            hint = did_you_mean(state, STATES)
            raise ConfigError(f"state={state}{hint}; give some of {', '.join(STATES)}")
    folder = folder_of(_without(arguments, "state"))
    return [run for run in runs_of(folder) if run.status().state in values["state"]]


def _words(override: Override) -> list[str]:
    """The values of `key=a` or `key=a,b`."""
    if override.is_discrete_sweep():
        return [str(value) for value in override.sweep_string_iterator()]
    return [str(override.value())]


def _without(arguments: Arguments, key: str) -> Arguments:
    kept = tuple(word for word in arguments.overrides if word.partition("=")[0] != key)
    return replace(arguments, overrides=kept)
