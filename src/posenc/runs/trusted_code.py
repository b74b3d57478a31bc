"""Remembers what the user has trained with: classes, W&B projects, and folders of prepared data.

A run directory may come from someone else, so its files cannot decide which code is run, where
results are uploaded or where data are written. A class that the user has already trained with on
this machine, from the same file, can be imported, results can be uploaded to a W&B project, or to a
trial of a W&B sweep, that the user has used, and data can be prepared in a folder that the user has
chosen.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from posenc.config.component_types import find_module
from posenc.config.errors import RunError
from posenc.config.values import matches_type
from posenc.runs.files import read_json, write_json
from posenc.runs.lock import lock


def record_trusted(
    targets: Iterable[str] = (),
    destinations: Iterable[str] = (),
    trials: Iterable[str] = (),
    cache_dirs: Iterable[str] = (),
) -> None:
    """Record classes and functions that the user trains with, and where runs are uploaded.

    `trials` are W&B run ids that a sweep has assigned, and `cache_dirs` folders of prepared data.
    Does nothing if the record cannot be written.
    """
    entries = {entry for target in targets if (entry := _target_entry(target)) is not None}
    entries |= {_destination_entry(destination) for destination in destinations}
    entries |= {_trial_entry(trial) for trial in trials}
    entries |= {_cache_entry(folder) for folder in cache_dirs}
    record = _record()
    if record is None or entries <= _recorded_entries(record):
        return
    with suppress(OSError, RunError), lock(record.with_suffix(".lock")):
        write_json(record, sorted(_recorded_entries(record) | entries))


def is_trusted_target(target: str) -> bool:
    """Whether the user has trained with this class or function, from the file it is now in."""
    return _is_recorded(_target_entry(target))


def is_trusted_destination(destination: str) -> bool:
    """Return whether the user has trained runs that are uploaded to `destination`."""
    return _is_recorded(_destination_entry(destination))


def is_trusted_trial(wandb_id: str) -> bool:
    """Return whether a W&B sweep has assigned this run id to a run of the user."""
    return _is_recorded(_trial_entry(wandb_id))


def is_trusted_cache(folder: str) -> bool:
    """Return whether the user has trained with this `cache_dir`."""
    return _is_recorded(_cache_entry(folder))


def _is_recorded(entry: str | None) -> bool:
    record = _record()
    return record is not None and entry in _recorded_entries(record)


def _record() -> Path | None:
    """Return the path of the record, or None if the user has no home directory.

    A relative path could lead to someone else's file in the current folder.
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


def _destination_entry(destination: str) -> str:
    return f"upload to {destination}"


def _trial_entry(wandb_id: str) -> str:
    return f"W&B trial {wandb_id}"


def _cache_entry(folder: str) -> str:
    return f"data in {os.path.realpath(folder)}"


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
