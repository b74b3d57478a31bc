"""Helpers for several commands: experiment folders, settings, `--cfg` and trusted modules."""

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.cli.arguments import FOLDER_KEYS, SELECTION_KEYS, Arguments
from posenc.config.compose import Composer, compose
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.overrides import override_key, parse
from posenc.config.paths import experiment_names
from posenc.config.resolve import compose_resolved
from posenc.config.settings import TYPES, check_settings


def experiment_folder(arguments: Arguments) -> Path:
    """Return `outputs_dir/name`. Raises ConfigError for an unknown key or a missing folder.

    An argument without `=` is a folder's name: `quickstart` means `name=quickstart`.
    """
    config = _folder_settings(arguments)
    folder = Path(config.outputs_dir) / config.name
    if not folder.is_dir():
        names = ", ".join(experiment_names(folder.parent)) or "none"
        raise ConfigError(f"{folder} does not exist (experiments in {config.outputs_dir}: {names})")
    return folder


def outputs_folder(arguments: Arguments) -> Path:
    """Return `outputs_dir`, the folder of all experiments; it may not exist."""
    return Path(_folder_settings(arguments).outputs_dir)


def _folder_settings(arguments: Arguments) -> DictConfig:
    overrides = [word if "=" in word else f"name={word}" for word in arguments.overrides]
    for override in overrides:
        if override_key(override) not in FOLDER_KEYS:
            known = (*FOLDER_KEYS, *SELECTION_KEYS.get(arguments.command, ()))
            raise ConfigError(
                f"{override}: unknown key (available: {', '.join(known)})"
                f"{did_you_mean(override_key(override), known)}"
            )
    config = compose("train", overrides, arguments.config_dirs)
    check_settings(config, {key: TYPES[key] for key in ("name", "outputs_dir")})
    return config


def require_single_values(arguments: Arguments) -> None:
    """Raise ConfigError if a key has several values, as in a sweep."""
    for override in parse(arguments.overrides):
        if override.is_sweep_override():
            command = f"posenc {arguments.command}"
            if "run" in map(override_key, arguments.overrides):
                command += " run=PATH"
            raise ConfigError(f"{override.input_line}: {command} takes a single value per key")


def compose_request(arguments: Arguments, config_name: str) -> DictConfig:
    """Return the settings of a command that works on one run, from `conf/<config_name>.yaml`."""
    require_single_values(arguments)
    values = compose_resolved(Composer(config_name, arguments.config_dirs), arguments.overrides)
    return OmegaConf.create(values)


def print_configs(configs: Iterable[Any]) -> int:
    """Print configurations as YAML, for the flag `--cfg`, and return the exit code 0."""
    for config in configs:
        print(OmegaConf.to_yaml(config))
    return 0


def command_with_modules(arguments: Arguments) -> Callable[[list[str]], str]:
    """Return a function that returns the user's command with `modules` set to a given list."""

    def command(modules: list[str]) -> str:
        words = [word for word in arguments.argv if override_key(word) != "modules"]
        value = f"modules=[{','.join(modules)}]"
        return shlex.join(["posenc", arguments.command, *words, value])

    return command
