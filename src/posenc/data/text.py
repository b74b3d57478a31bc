"""A corpus of local files, given as paths or glob patterns."""

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.settings import SPLITS
from posenc.config.values import json_digest
from posenc.data.corpus import SplitFractions, SplittableCorpus
from posenc.data.document_files import FORMATS, DocumentFile

Paths = str | Sequence[str]
_DEFAULT_COLUMN = "text"
_DEFAULT_FRACTION = 0.05
_MAX_FOLDERS = 20_000
_USAGE = f"pass a file, a glob or a list of them ({', '.join(FORMATS)})"


class TextCorpus(SplittableCorpus):
    """Files for each split, or `paths` that are split automatically.

    With at least 200 documents, the automatic split assigns each document by its hash. With fewer,
    each document is cut into three parts: the beginning for training, the middle for validation and
    the end for testing. Files are sorted by suffix and content digest, so that the data does not
    depend on their location.
    """

    name = "text"

    def __init__(
        self,
        train: Paths | None = None,
        validation: Paths | None = None,
        test: Paths | None = None,
        paths: Paths | None = None,
        column: str = _DEFAULT_COLUMN,
        validation_fraction: float = _DEFAULT_FRACTION,
        test_fraction: float = _DEFAULT_FRACTION,
    ) -> None:
        arguments = zip(SPLITS, (train, validation, test), strict=True)
        paths_by_split = {split: value for split, value in arguments if value is not None}
        self._fractions = None
        if paths is None:
            if not paths_by_split:
                raise ConfigError(
                    "data=text needs files: set any of data.train, data.validation and data.test,"
                    " or data.paths for an automatic split"
                )
            if (validation_fraction, test_fraction) != (_DEFAULT_FRACTION, _DEFAULT_FRACTION):
                raise ConfigError(
                    "data.validation_fraction and data.test_fraction only apply to data.paths"
                )
            self._files: dict[str, list[DocumentFile]] = {
                split: find_files(f"data.{split}", value, column)
                for split, value in paths_by_split.items()
            }
            _check_disjoint(self._files)
        else:
            if paths_by_split:
                raise ConfigError(
                    f"data.paths is split automatically and cannot be combined with"
                    f" data.{', data.'.join(paths_by_split)}; use one or the other"
                )
            self._fractions = SplitFractions(validation_fraction, test_fraction)
            files = find_files("data.paths", paths, column)
            self._files = dict.fromkeys(self._fractions.splits(), files)
        files = [file for split_files in self._files.values() for file in split_files]
        if column != _DEFAULT_COLUMN and not any(file.tabular for file in files):
            raise ConfigError(
                f"data.column={column!r} has no effect: .txt files have no columns; leave it out"
            )

    def splits(self) -> tuple[str, ...]:
        return tuple(self._files)

    def _documents(self, split: str) -> Iterator[str]:
        return chain.from_iterable(file.documents() for file in self._files[split])

    def split_digest(self, split: str) -> str:
        fractions = self._fractions
        rule = [split, fractions.validation, fractions.test] if fractions else None
        return json_digest(
            {"files": [file.content_key for file in self._files[split]], "rule": rule}
        )

    def check_unchanged(self) -> None:
        for file in {file for files in self._files.values() for file in files}:
            file.check_unchanged()


def _check_disjoint(files_by_split: Mapping[str, Sequence[DocumentFile]]) -> None:
    """Raise ConfigError if two splits have the same file, or a copy of it."""
    seen: dict[tuple[str, ...], tuple[str, DocumentFile]] = {}
    for split, files in files_by_split.items():
        for file in files:
            first_split, first = seen.setdefault(file.content_key, (split, file))
            if first_split != split:
                raise ConfigError(
                    f"{first.label} and {file.label} have the same contents; give each split its"
                    f" own files"
                )


def find_files(key: str, paths: Paths, column: str) -> list[DocumentFile]:
    """Return the files that the setting `key` names, sorted by suffix and digest of the contents.

    Unlike an order by path, this order does not depend on where the files are. Raises ConfigError
    if a path or pattern matches no file, or if a file is empty or not in one of FORMATS.
    """
    patterns = [paths] if isinstance(paths, str) else list(paths)
    if not patterns:
        raise ConfigError(f"{key} is an empty list; {_USAGE}")
    unique = {
        path.resolve(): path for pattern in patterns for path in _matching_files(key, pattern)
    }
    files = [_open_file(path, key, column) for path in unique.values()]
    return sorted(files, key=lambda file: file.content_key)


def _matching_files(key: str, pattern: str) -> list[Path]:
    path = Path(os.path.expanduser(pattern))
    if path.is_dir():
        raise ConfigError(f"{key}: '{pattern}' is a folder; pass its files: '{pattern}/*.txt'")
    if path.is_file():
        return [path]
    if path.exists():
        raise ConfigError(f"{key}: '{pattern}' is not a regular file; {_USAGE}")
    if path.is_symlink():
        raise ConfigError(
            f"{key}: '{pattern}' is a link to {os.readlink(path)}, which does not exist; {_USAGE}"
        )
    if not glob.has_magic(pattern):
        hint = did_you_mean(path.name, os.listdir(path.parent) if path.parent.is_dir() else [])
        raise ConfigError(f"{key}: '{pattern}' does not exist{hint}; {_USAGE}")
    _check_folder_count(key, pattern)
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    files = [match for match in matches if match.is_file()]
    if not files:
        raise ConfigError(f"{key}: '{pattern}' matches no file; {_USAGE}")
    return files


def _check_folder_count(key: str, pattern: str) -> None:
    """Raise ConfigError if a pattern searches too many folders; `**` follows symlinks."""
    prefix = Path()
    for part in Path(os.path.expanduser(pattern)).parts[:-1]:
        parent, prefix = prefix, prefix / part
        is_recursive = "**" in part
        searched: Iterable[object] = glob.iglob(f"{prefix}/")
        if is_recursive:
            roots = glob.iglob(f"{parent}/")
            searched = chain.from_iterable(os.walk(root, followlinks=True) for root in roots)
        if next(islice(searched, _MAX_FOLDERS, None), None) is not None:
            raise ConfigError(
                f"{key}: '{pattern}' searches more than {_MAX_FOLDERS:,} folders, symlinks"
                " included; use a more specific folder before the first wildcard"
            )
        if is_recursive:
            return


def _open_file(path: Path, key: str, column: str) -> DocumentFile:
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"{key}: '{path}' has the unsupported suffix '{path.suffix}' (supported:"
            f" {', '.join(FORMATS)}); convert or rename it"
        )
    if path.stat().st_size == 0:
        raise ConfigError(f"{key}: '{path}' is empty; pass a file that contains text")
    return FORMATS[path.suffix](path, key, column)
