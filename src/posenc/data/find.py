"""From paths and globs to files of documents."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from posenc.config.errors import ConfigError, did_you_mean
from posenc.data.formats import FORMATS, DocumentFile

Paths = str | Sequence[str]
_GIVE = f"give a file, a glob or a list of them ({', '.join(FORMATS)})"


def find_files(key: str, paths: Paths, column: str) -> list[DocumentFile]:
    """The files that the setting `key` names, in the order of their contents' digests.

    That order, unlike one by name, is the same wherever the files lie.
    """
    patterns = [paths] if isinstance(paths, str) else list(paths)
    if not patterns:
        raise ConfigError(f"{key}: the list is empty; {_GIVE}")
    found = {path.resolve(): path for pattern in patterns for path in _matches(key, pattern)}
    files = [_open(path, key, column) for path in found.values()]
    return sorted(files, key=lambda file: file.identity)


def _matches(key: str, pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        raise ConfigError(f"{key}: '{pattern}' is a folder; give its files: '{pattern}/*.txt'")
    if path.is_file():
        return [path]
    if not glob.has_magic(pattern):
        hint = did_you_mean(path.name, os.listdir(path.parent) if path.parent.is_dir() else [])
        raise ConfigError(f"{key}: '{pattern}' does not exist{hint}; {_GIVE}")
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    files = [match for match in matches if match.is_file()]
    if not files:
        raise ConfigError(f"{key}: '{pattern}' matches no file; {_GIVE}")
    return files


def _open(path: Path, key: str, column: str) -> DocumentFile:
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"{key}: '{path}' ends in '{path.suffix}', which is not one of {', '.join(FORMATS)}; "
            "convert or rename it"
        )
    if path.stat().st_size == 0:
        raise ConfigError(f"{key}: '{path}' is empty; give a file with text in it")
    return FORMATS[path.suffix](path, key, column)
