"""Parsing of command lines, which consist of Hydra overrides and a few flags."""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.config.errors import ConfigError
from posenc.config.yaml_files import check_yaml_files

FLAGS = {
    "train": ("--cfg",),
    "status": ("--json", "--watch"),
    "clean": ("--yes",),
    "plan": ("--json",),
    "report": ("--full", "--strict"),
    "dashboard": ("--spec",),
}
MULTIRUN_FLAGS = ("-m", "--multirun")


@dataclass(frozen=True)
class Arguments:
    """A parsed command line; `argv` holds the words after the command's name."""

    command: str
    overrides: tuple[str, ...]
    config_dirs: tuple[Path, ...]
    flags: frozenset[str]
    argv: tuple[str, ...]

    def command_line(self) -> str:
        """Return the command line, quoted for a shell."""
        return shlex.join(["posenc", self.command, *self.argv])


def parse(command: str, argv: Sequence[str]) -> Arguments:
    """Separate flags from overrides. Raises ConfigError for a flag that the command does not have.

    `--config-dir DIR` adds a folder of YAML files. Hydra's `-m` is accepted but not needed, because
    commas make a sweep. If a key is set more than once, the last value is used, and a note says so.
    """
    overrides: list[str] = []
    config_dirs: list[Path] = []
    flags: set[str] = set()
    remaining = list(argv)
    while remaining:
        word = remaining.pop(0)
        name, _, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            config_dirs.append(_config_dir(value or (remaining.pop(0) if remaining else "")))
        elif word in FLAGS.get(command, ()):
            flags.add(word)
        elif word in MULTIRUN_FLAGS and command == "train":
            continue
        elif word.startswith("-"):
            available = ", ".join([*FLAGS.get(command, ()), "--config-dir DIR", "--help"])
            raise ConfigError(f"unknown flag {word} (available: {available})")
        else:
            _check_hydra_key(word)
            overrides.append(word)
    for key, count in Counter(map(_key, overrides)).items():
        if count > 1:
            print(f"note: {key} is set {count} times; its last value is used", file=sys.stderr)
    return Arguments(command, tuple(overrides), tuple(config_dirs), frozenset(flags), tuple(argv))


def _key(override: str) -> str:
    """Return the key of an override, without parsing it, because `list` must not import Hydra."""
    return override.partition("=")[0].lstrip("+~")


def _check_hydra_key(override: str) -> None:
    """Raise ConfigError for a setting of Hydra itself that would have no effect."""
    key = _key(override)
    is_launcher = key == "hydra/launcher" or key.startswith("hydra.launcher.")
    if key.startswith(("hydra.", "hydra/")) and not is_launcher:
        raise ConfigError(
            f"{key} has no effect here; only hydra/launcher and hydra.launcher.* can be set"
        )


def _config_dir(name: str) -> Path:
    if not name or not Path(name).is_dir():
        raise ConfigError(f"--config-dir {name} is not a folder; use a folder with YAML files")
    check_yaml_files(Path(name))
    return Path(name)
