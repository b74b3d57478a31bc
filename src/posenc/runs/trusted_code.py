"""Remembers the modules that the user has trained with, so that later commands may import them.

A run directory may come from someone else, so its configuration cannot decide which code is run. A
file that the user has already trained with on this machine, in the same place, can be imported.
"""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from posenc.config.errors import RunError
from posenc.config.values import matches_type
from posenc.runs.files import read_json, write_json
from posenc.runs.lock import lock


def remember_modules(modules: Iterable[str]) -> None:
    """Record the files of modules that the user trains with, if the record can be written."""
    files = {file for module in modules if (file := _file(module)) is not None}
    record = _record()
    if files <= _remembered(record):
        return
    with suppress(OSError, RunError), lock(record.with_suffix(".lock")):
        write_json(record, sorted(_remembered(record) | files))


def is_remembered(module: str) -> bool:
    """Whether the user has trained with the file that importing `module` would run."""
    return _file(module) in _remembered(_record())


def _record() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "posenc" / "trusted_modules.json"


def _remembered(record: Path) -> set[str]:
    """Return the recorded files; a record that is damaged counts as empty."""
    try:
        files = read_json(record, [])
    except RunError:
        return set()
    return set(files) if matches_type(files, list[str]) else set()


def _file(module: str) -> str | None:
    """Return the file of a top-level module or package, without importing it."""
    root = module.split(".")[0]
    with suppress(ImportError, ValueError):
        loaded = sys.modules.get(root)
        spec = find_spec(root) if loaded is None else loaded.__spec__
        if spec is not None and spec.origin is not None:
            return os.path.realpath(spec.origin)
    return None
