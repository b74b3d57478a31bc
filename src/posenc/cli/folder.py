"""The experiment folder, or the run in it, that a command is about."""

from pathlib import Path
from typing import Any

from posenc.cli.arguments import Arguments
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.explain import key_of
from posenc.runs.run_directory import RunDirectory

KEYS = ("experiment", "size", "name", "outputs_dir")


def folder_of(arguments: Arguments) -> Path:
    """`outputs_dir/name`; ConfigError for other keys, or where the folder is not there.

    A bare word is the name of a folder: `quickstart` is `name=quickstart`.
    """
    overrides = [word if "=" in word else f"name={word}" for word in arguments.overrides]
    foreign = [o for o in overrides if key_of(o) not in KEYS]
    if foreign:
        raise ConfigError(f"{foreign[0]}: this command knows the keys {', '.join(KEYS)} alone")
    config = compose("train", overrides, arguments.config_dirs)
    folder = Path(config.outputs_dir) / config.name
    if not folder.is_dir():
        there = sorted(p.parent.name for p in Path(config.outputs_dir).glob("*/plan.json"))
        names = f"there are {', '.join(there)}" if there else "nothing has been trained there yet"
        raise ConfigError(f"{folder}: there is no such folder; {names}")
    return folder


def run_directory(path: Any) -> RunDirectory:
    """The run in the folder `path`; ConfigError where there is none."""
    if path is None:
        raise ConfigError("run is missing; give run=outputs/<experiment>/<run>")
    if not isinstance(path, str):
        raise ConfigError(f"run={path} is no path; give run=outputs/<experiment>/<run>")
    target = RunDirectory(Path(path))
    if not target.config_file.is_file():
        raise ConfigError(f"run={path} is no run directory: it has no config.yaml")
    return target
