"""Parsing of command lines, which consist of Hydra overrides and a few flags."""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.config.errors import ConfigError
from posenc.config.yaml_files import check_config_dirs

FOLDER_KEYS = ("experiment", "size", "name", "outputs_dir")
"""Keys that name the folder of an experiment."""
FILTER_KEYS = ("encoding", "train_length", "seed")
"""Keys that select runs of an experiment."""
SELECTION_KEYS = dict.fromkeys(("report", "status"), ("run", *FILTER_KEYS))
"""Command -> the keys that select some runs of its experiment."""
CFG = "--cfg"
FLAGS = {
    **dict.fromkeys(("train", "evaluate", "bench", "inspect", "check"), (CFG,)),
    **dict.fromkeys(("search-factors", "tune", "wandb-sweep"), (CFG,)),
    "plan": (CFG, "--json"),
    "status": ("--json", "--watch"),
    "sync": ("--offline",),
    "clean": ("--yes",),
    "report": ("--full", "--strict"),
    "dashboard": ("--spec",),
}
CFG_PARTS = ("job", "hydra", "all")
"""The values of Hydra's `--cfg`; posenc supports only `job`, the default."""
MULTIRUN_FLAGS = ("-m", "--multirun")
SWEEP_COMMANDS = ("train", "plan", "evaluate", "bench", "inspect", "tune", "wandb-sweep")
UNSUPPORTED_FLAGS = {
    "--config-name": "select a file in experiment/ with experiment=NAME",
    "--config-path": "add a folder of YAML files with --config-dir DIR",
    "--info": "posenc list prints the config groups, and posenc train --cfg the configuration",
    "--resolve": "--cfg prints resolved values",
    "--package": "--cfg prints the complete configuration",
    "--run": "posenc train runs the jobs",
    "--hydra-help": "posenc COMMAND --help lists the keys of a command",
    "--shell-completion": "posenc completion bash prints a completion script",
    "--version": "posenc --version prints the version",
    "--dry-run": "posenc plan estimates the runs without starting them",
    "--install-completion": "posenc completion bash prints a completion script",
    "--experimental-rerun": "rerun the command of a sweep, which resumes its runs",
}
"""A flag of Hydra or other tools that posenc does not support -> the alternative."""
SHORT_FLAGS = {
    "-cn": "--config-name",
    "-cp": "--config-path",
    "-i": "--info",
    "-p": "--package",
    "-r": "--run",
    "-sc": "--shell-completion",
    "-c": CFG,
    "-cd": "--config-dir",
}


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
    """Separate flags from overrides.

    Raises ConfigError for a flag that the command does not have, and for a folder or file that
    `check_config_dirs` rejects.

    `--config-dir DIR` adds a folder of YAML files. Hydra's `-m` (in SWEEP_COMMANDS) and the `job`
    of `--cfg job` are accepted but not needed: commas define a sweep, and `job` is the default. The
    errors for other Hydra flags name the alternative. If a key is set more than once, the last
    value is used, and a note is printed.
    """
    overrides: list[str] = []
    config_dirs: list[Path] = []
    flags: set[str] = set()
    remaining = list(argv)
    while remaining:
        word = remaining.pop(0)
        name, separator, value = word.partition("=")
        name = SHORT_FLAGS.get(name, name)
        if name == "--config-dir":
            if not separator and remaining:
                value = remaining.pop(0)
            if not value:
                raise ConfigError("--config-dir is missing a folder; use --config-dir DIR")
            config_dirs.append(Path(value))
        elif name == CFG and CFG in FLAGS.get(command, ()):
            part = value or (remaining.pop(0) if remaining and remaining[0] in CFG_PARTS else "job")
            if part != "job":
                raise ConfigError(f"{CFG} {part}: only {CFG} job is available; omit {part}")
            flags.add(CFG)
        elif word in FLAGS.get(command, ()):
            flags.add(word)
        elif word in MULTIRUN_FLAGS and command in SWEEP_COMMANDS:
            continue
        elif word.startswith("-"):
            raise _unknown_flag_error(command, word, name)
        else:
            overrides.append(word)
    check_config_dirs(config_dirs)
    for key, count in Counter(map(_key, overrides)).items():
        if count > 1:
            print(f"note: {key} is set {count} times; its last value is used", file=sys.stderr)
    return Arguments(command, tuple(overrides), tuple(config_dirs), frozenset(flags), tuple(argv))


def _key(override: str) -> str:
    """Return the key of an override, without parsing it, because `list` must not import Hydra."""
    return override.partition("=")[0].lstrip("+~")


def _unknown_flag_error(command: str, word: str, name: str) -> ConfigError:
    if name == CFG:
        return ConfigError(
            f"posenc {command} has no {CFG}; the configuration of a run is in its config.yaml, and"
            f" posenc train {CFG} prints that of a new run"
        )
    if name in UNSUPPORTED_FLAGS:
        return ConfigError(f"unsupported flag {word}; {UNSUPPORTED_FLAGS[name]}")
    available = ", ".join([*FLAGS.get(command, ()), "--config-dir DIR", "--help"])
    return ConfigError(f"unknown flag {word} (available: {available})")
