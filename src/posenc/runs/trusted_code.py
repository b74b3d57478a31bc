"""A record of the code, W&B destinations, folders and commands with which the user has trained.

A run directory may come from someone else, so its files cannot decide which code is run, where
results are uploaded, where data is written or which commands are printed. They can only name what
is in the record: see `Kind`.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

from posenc.config.component_types import find_module
from posenc.config.errors import RunError
from posenc.config.values import matches_type
from posenc.runs.files import read_json, write_json
from posenc.runs.lock import lock

Kind = Literal["target", "destination", "trial", "cache", "command"]
"""The kinds of entries in the record.

- target: a class or function in a file
- destination: a W&B project to which runs are uploaded
- trial: the id that a W&B sweep has assigned to a run
- cache: a folder of prepared data
- command: a command that the user has run in a folder to train
"""


def record_trusted(values: Mapping[Kind, Iterable[str]]) -> None:
    """Record what the user trains with. Does nothing if the record cannot be written."""
    entries = (_entry(kind, value) for kind, group in values.items() for value in group)
    new = {entry for entry in entries if entry is not None}
    record = _record()
    if record is None or new <= _recorded_entries(record):
        return
    with suppress(OSError, RunError), lock(record.with_suffix(".lock")):
        write_json(record, sorted(_recorded_entries(record) | new))


def is_trusted(kind: Kind, value: str) -> bool:
    """Return whether the user has trained with `value`; a target must be in the same file."""
    record = _record()
    return record is not None and _entry(kind, value) in _recorded_entries(record)


def _record() -> Path | None:
    """Return the path of the record, or None if the user has no home directory.

    A relative path could lead to someone else's file in the current directory.
    """
    state = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    return Path(state) / "posenc" / "trusted_targets.json" if os.path.isabs(state) else None


def _recorded_entries(record: Path) -> set[str]:
    """Return the recorded entries; a record that is corrupt counts as empty."""
    try:
        entries = read_json(record, [])
    except RunError:
        return set()
    return set(entries) if matches_type(entries, list[str]) else set()


def _entry(kind: Kind, value: str) -> str | None:
    """Return the entry for a value; None for a target whose module does not exist."""
    match kind:
        case "target":
            return _target_entry(value)
        case "destination":
            return f"upload to {value}"
        case "trial":
            return f"W&B trial {value}"
        case "cache":
            return f"data in {os.path.realpath(value)}"
        case "command":
            return _command_entry(value)


def _command_entry(command: str) -> str | None:
    """Return the entry of a command that has been run in the current directory.

    The entry includes the folder, on which relative paths depend. Absolute paths in the folder
    count as relative ones, because reports abbreviate them.
    """
    with suppress(FileNotFoundError):  # the folder has been deleted
        folder = os.getcwd()
        text = f"{folder} {command.replace(f'{folder}/', '')}"
        return f"command {sha256(text.encode()).hexdigest()[:16]}"
    return None


def _target_entry(target: str) -> str | None:
    """Return the file of the target's top-level module, and the target; imports nothing.

    Symbolic links are resolved in the path of the folder that contains the module or package, but
    not in its name: a link to it in someone else's folder could have other modules next to it.
    """
    with suppress(ImportError, ValueError):
        spec = find_module(target.split(".")[0])
        if spec is not None and spec.origin is not None:
            is_package = spec.submodule_search_locations is not None
            path = Path(os.path.abspath(spec.origin))
            folder = path.parents[1] if is_package else path.parent
            return f"{os.path.realpath(folder)}/{path.relative_to(folder)}:{target}"
    return None
