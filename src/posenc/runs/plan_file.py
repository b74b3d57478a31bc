"""`plan.json`: the runs of an experiment, its commands, premises and claims."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posenc.config.errors import RunError
from posenc.config.paths import replace_home
from posenc.config.values import is_printable
from posenc.runs.files import corrupt_file_error, read_mapping, reject_special_files, write_json
from posenc.runs.lock import lock
from posenc.runs.trusted_code import is_trusted

PLAN_TYPES = {
    "runs": list[str],
    "command": str | None,
    "commands": dict[str, str],
    "about": dict[str, str | list[str] | None] | None,
    "premises": list | None,
    "claims": list | None,
    "published": list | None,
}

PLAN_LOCK = ".plan.lock"
"""The lock in an experiment's folder that a process holds while it updates a file of the folder."""

COPY_LOCK = ".copy.lock"
"""The lock in an experiment's folder that a process holds while it copies a finished run there."""

PLAIN_OVERRIDE = re.compile(
    r"(encoding|experiment|size|model|data|tokenizer|optimizer|schedule|evaluation|logger"
    r"|train_length|seed|tokens|batch_tokens|precision|name|retry"
    r"|(encoding|model|optimizer|schedule|evaluation)(\.[a-z][a-z_]*)+)=[\w.,+\[\]-]*",
    re.ASCII,
)
"""An override that only selects options or sets names and numbers."""

EXPERIMENT_FILES = ("plan.json", PLAN_LOCK, COPY_LOCK, ".code", ".submitit", "wandb")
"""Files and folders in an experiment's folder, besides its runs and reports."""

REPORT_FOLDERS = ("report", "report-selected")


def read_plan(folder: Path) -> dict[str, Any]:
    """Return an experiment's `plan.json`, with empty `runs` and `commands` if there is none.

    Raises RunError if the file is corrupt, or if `reject_special_files` rejects a file or folder of
    the experiment that is not a run.
    """
    reject_special_files(folder / name for name in (*EXPERIMENT_FILES, *REPORT_FOLDERS))
    file = folder / "plan.json"
    plan: dict[str, Any] = {"runs": [], "commands": {}, **read_mapping(file, PLAN_TYPES)}
    if not is_printable(plan):
        raise corrupt_file_error(file, "it contains unprintable characters")
    if wrong := [name for name in plan["runs"] if not _is_file_name(name)]:
        raise corrupt_file_error(file, f"invalid run name {wrong[0]!r}")
    for command in {plan.get("command") or "", *plan["commands"].values()}:
        try:
            shlex.split(command)
        except ValueError as error:
            raise corrupt_file_error(file, f"not a command: {command!r} ({error})") from None
    return plan


def update_plan(
    folder: Path, values: Mapping[str, Any], command: str, names: Sequence[str]
) -> None:
    """Write `values` to `plan.json`, and add the runs `names` and the command that planned them.

    Null values do not replace older ones, because a command without `experiment=` may add runs.
    Raises RunError if the file is corrupt or not from posenc.
    """
    with lock(folder / PLAN_LOCK):
        old, file = read_plan(folder), folder / "plan.json"
        if file.exists() and "runs" not in read_mapping(file, PLAN_TYPES):
            raise RunError(f"{file} is not from posenc; move it elsewhere, or use another folder")
        plan = {
            **{key: old.get(key) if value is None else value for key, value in values.items()},
            "command": command,
            "commands": {**old["commands"], **dict.fromkeys(names, command)},
            "runs": list(dict.fromkeys([*old["runs"], *names])),
        }
        write_json(file, plan)


def quoted_command(command: str) -> str | None:
    """Return a command from a plan, quoted for a shell, or None if it should not be pasted there.

    The plan may be from someone else, so only `posenc train` is returned. Arguments other than
    PLAIN_OVERRIDE could run code, read or write other folders, or upload; a command with such
    arguments is returned only if the user has run it in the current directory.
    """
    words = shlex.split(command)
    if words[:2] != ["posenc", "train"]:
        return None
    is_plain = all(map(PLAIN_OVERRIDE.fullmatch, words[2:]))
    return shlex.join(words) if is_plain or is_trusted("command", command) else None


def is_withheld(command: str) -> bool:
    """Return whether a command is a `posenc train` for which `quoted_command` returns None."""
    return shlex.split(command)[:2] == ["posenc", "train"] and quoted_command(command) is None


def with_overrides(command: str, overrides: Mapping[str, str]) -> list[str]:
    """Return the words of a command with `overrides`, which replace those with the same key."""
    kept = [word for word in shlex.split(command) if word.partition("=")[0] not in overrides]
    return [*kept, *(f"{key}={value}" for key, value in overrides.items())]


def join_command(words: Sequence[str]) -> str:
    """Return a command for a report, quoted for a shell; it names the home directory as $HOME."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    short = replace_home(word, "$HOME")
    if short == word:
        return shlex.quote(word)
    if re.search(r'["`\\!$]', word):  # a shell would expand more than $HOME
        return shlex.quote(replace_home(word, "~"))
    return f'"{short}"'


def _is_file_name(name: str) -> bool:
    """Return whether a file can have this name; file systems allow 255 bytes."""
    return Path(name).parts == (name,) and name != ".." and len(name.encode()) <= 255
