"""The words of a command line: overrides in Hydra's grammar, and a few flags."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from posenc.config.errors import ConfigError

FLAGS = {
    "train": ("--cfg",),
    "status": ("--json", "--watch"),
    "clean": ("--yes",),
    "plan": ("--json",),
    "report": ("--strict",),
    "dashboard": ("--spec",),
}
HYDRA_HABIT = ("-m", "--multirun")


@dataclass(frozen=True)
class Arguments:
    """`words` as they were typed, apart."""

    command: str
    overrides: tuple[str, ...]
    config_dirs: tuple[Path, ...]
    flags: frozenset[str]
    words: tuple[str, ...]

    def typed(self) -> str:
        """The command as it was typed, for a person to repeat."""
        return shlex.join(["posenc", self.command, *self.words])


def parse(command: str, words: Sequence[str]) -> Arguments:
    """Tell flags from overrides; ConfigError for a flag that the command does not have.

    `--config-dir DIR` adds a folder of YAMLs. Hydra's `-m` may be given and says nothing: commas
    make a sweep.
    """
    overrides: list[str] = []
    folders: list[Path] = []
    flags: set[str] = set()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            folders.append(_folder(value or (rest.pop(0) if rest else "")))
        elif word in FLAGS.get(command, ()):
            flags.add(word)
        elif word in HYDRA_HABIT and command == "train":
            continue
        elif word.startswith("-"):
            known = ", ".join([*FLAGS.get(command, ()), "--config-dir DIR", "--help"])
            raise ConfigError(f"{word} is not a flag of this command; it has {known}")
        else:
            overrides.append(word)
    return Arguments(command, tuple(overrides), tuple(folders), frozenset(flags), tuple(words))


def _folder(name: str) -> Path:
    if not name or not Path(name).is_dir():
        raise ConfigError(
            f"--config-dir {name}: there is no such folder; give one that holds YAMLs"
        )
    return Path(name)
