"""`posenc completion`: print a completion script for a shell.

The script calls `posenc completion line=TEXT`, which prints the possible completions of its last
word.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import yaml

from posenc.cli.arguments import FILTER_KEYS, FLAGS, FOLDER_KEYS, SELECTION_KEYS, Arguments
from posenc.cli.help import COMMANDS
from posenc.config.errors import ConfigError
from posenc.config.paths import (
    OUTPUTS,
    allowed_options,
    conf_dir,
    experiment_names,
    groups,
    option_files,
)
from posenc.config.settings import TYPES
from posenc.config.yaml_files import check_config_dir

SCRIPTS = {
    "bash": """
_posenc() {
    local line="${COMP_LINE:0:COMP_POINT}" word
    COMPREPLY=()
    while IFS= read -r word; do
        [[ -n $word ]] || continue  # no completions
        # Readline replaces only the part of a word after its last word break.
        [[ ${line##* } == *=* && $COMP_WORDBREAKS == *=* ]] && word="${word#*=}"
        COMPREPLY+=("$word")
    done < <(posenc completion "line=$line" 2>/dev/null)
    if [[ ${COMPREPLY[0]} == *[=.] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _posenc posenc
""",
    "zsh": """
_posenc() {
    local -a candidates
    candidates=("${(@f)$(posenc completion "line=${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    compadd -Q -S '' -- ${(M)candidates:#*[=.]}
    compadd -Q -- ${candidates:#*[=.]}
}
compdef _posenc posenc
""",
    "fish": """
complete -c posenc -f -a '(posenc completion "line="(commandline -cp) 2>/dev/null)'
""",
}
CONFIG_FILES = dict.fromkeys(("plan", "tune", "wandb-sweep", "check"), "train")
"""Command -> the file in `conf/` that has its keys, if it is not named after the command."""
EXPERIMENT_GROUPS = ("experiment", "size")
"""Config groups whose options set keys of other groups."""
EXTRA_KEYS = {
    "plan": ("machine", "machine.utilization"),
    "bench": EXPERIMENT_GROUPS,
    "inspect": EXPERIMENT_GROUPS,
    "evaluate": (*FOLDER_KEYS, *FILTER_KEYS),
    **SELECTION_KEYS,
    "clean": ("run", "state"),
    "wandb-sweep": ("method", "min_iter"),
    "tune": ("trials",),
}
"""Command -> keys that it accepts in addition to those in its file in `conf/` or FOLDER_KEYS."""
SAFE_WORD = re.compile(r"[\w./+=-]+")
"""A word without characters that are special in a shell."""
POSITIONAL_NAME_COMMANDS = ("report", "status", "sync", "dashboard")
"""The commands that take the name of an experiment without `name=`."""
FOLDER_COMMANDS = (*POSITIONAL_NAME_COMMANDS, "clean")


@dataclass(frozen=True)
class Context:
    """Folders, and the values of all keys, read from the words before the cursor."""

    config_dirs: list[Path]
    outputs: Path
    values: dict[str, set[str]]

    @classmethod
    def from_words(cls, words: Sequence[str]) -> Self:
        config_dirs = [Path(value) for flag, value in pairwise(words) if flag == "--config-dir"]
        pairs = {key: value for key, _, value in (word.partition("=") for word in words)}
        config_dirs += [Path(pairs["--config-dir"])] if pairs.get("--config-dir") else []
        config_dirs = [folder for folder in config_dirs if _is_valid(folder)]
        values = {key: set(value.split(",")) for key, value in pairs.items()}
        return cls(config_dirs, Path(pairs.get("outputs_dir") or OUTPUTS), values)


def run(arguments: Arguments) -> int:
    (word,) = arguments.overrides if len(arguments.overrides) == 1 else ("",)
    key, _, line = word.partition("=")
    if key == "line":
        print("\n".join(completions(line)))
    elif word in SCRIPTS:
        print(SCRIPTS[word].strip())
    else:
        raise ConfigError(f"specify a shell: posenc completion {'|'.join(SCRIPTS)}")
    return 0


def completions(line: str) -> list[str]:
    """Return the completions of the last word of a command line, which ends at the cursor."""
    *words, last = re.split(r"\s+", line.lstrip())
    if len(words) < 2:
        return _matching([*COMMANDS, "--help", "--version"], last)
    command = words[1]
    if command not in COMMANDS:
        return []
    context = Context.from_words(words[2:])
    if words[-1] == "--config-dir":
        return _matching([f"{path}/" for path in Path().glob(f"{last}*/")], last)
    if last.startswith("-"):
        return _matching([*FLAGS.get(command, ()), "--config-dir", "--help"], last)
    if command in ("list", "completion"):
        return _matching(groups() if command == "list" else tuple(SCRIPTS), last)
    key, separator, value = last.partition("=")
    if not separator:
        keys = [_next_part(f"{key}=", last) for key in _keys(command, context)]
        folders = _values("name", context) if command in POSITIONAL_NAME_COMMANDS else []
        return _matching([*folders, *keys], last)
    current = re.split(r"[\[,]", value)[-1]
    start = value.removesuffix(current)
    excluded = {*start.strip("[").split(","), *(["none"] if "[" in start else [])}
    values = [option for option in _values(key, context) if option not in excluded]
    return [f"{key}={start}{option}" for option in _matching(values, current)]


def _is_valid(config_dir: Path) -> bool:
    try:
        check_config_dir(config_dir)
    except ConfigError:
        return False
    return True


def _matching(words: Iterable[str], prefix: str) -> list[str]:
    """Return the words that start with `prefix` and that are safe in a shell (SAFE_WORD)."""
    return sorted({word for word in words if word.startswith(prefix) and SAFE_WORD.fullmatch(word)})


def _next_part(key: str, start: str) -> str:
    """Return a dotted key up to the first dot after `start`, to keep the list of keys short."""
    part, dot, _ = key[len(start) :].partition(".")
    return key[: len(start)] + part + dot


def _values(key: str, context: Context) -> list[str]:
    """Return a key's possible values: options, experiments, run directories or allowed strings."""
    names = allowed_options(key, context.config_dirs)
    if key == "name":
        names = experiment_names(context.outputs)
    elif key == "run":
        names = [str(file.parent) for file in context.outputs.glob("*/*/config.yaml")]
    elif not names:
        choices = TYPES.get(key)
        names = [str(choice).lower() for choice in choices] if isinstance(choices, tuple) else []
    return list(names)


def _keys(command: str, context: Context) -> list[str]:
    """Return the keys of a command, including those of its config groups' options.

    If no option of a group is chosen, the keys of all its options are included.
    """
    if command in FOLDER_COMMANDS:
        return [*FOLDER_KEYS, *EXTRA_KEYS.get(command, ())]
    file = conf_dir() / f"{CONFIG_FILES.get(command, command).replace('-', '_')}.yaml"
    keys = _dotted_keys(file)
    entries = yaml.safe_load(file.read_text())["defaults"]
    defaults = [name for entry in entries if isinstance(entry, dict) for name in entry]
    default_groups = {name.removeprefix("override ").split("/")[0] for name in defaults}
    available = [group for group in groups() if group.split("/")[0] in default_groups]
    for group in set(available) - set(EXPERIMENT_GROUPS):
        prefix, files = group.replace("/", "."), option_files(group, context.config_dirs)
        names = files.keys() & context.values.get(group, ()) or files.keys()
        keys += [f"{prefix}.{key}" for name in names for key in _dotted_keys(files[name])]
    return [*keys, *available, *EXTRA_KEYS.get(command, ())]


def _dotted_keys(file: Path) -> list[str]:
    """Return the keys of a YAML file as dotted paths."""
    return _flatten_keys("", yaml.safe_load(file.read_text()) or {})


def _flatten_keys(prefix: str, node: dict[Any, Any]) -> list[str]:
    keys = []
    for name, child in node.items():
        if name != "defaults" and not str(name).endswith("_"):  # such as _target_
            nested = _flatten_keys(f"{prefix}{name}.", child) if isinstance(child, dict) else []
            keys += nested or [f"{prefix}{name}"]
    return keys
