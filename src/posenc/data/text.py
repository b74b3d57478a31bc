"""A corpus of local files, named by path or glob."""

import glob
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.settings import SPLITS
from posenc.data.corpus import Corpus, SplitFractions, digest_of
from posenc.data.document_files import FORMATS, DocumentFile

Paths = str | Sequence[str]
_COLUMN = "text"
_FRACTION = 0.05
# With fewer documents, a fraction of 0.05 chosen by hash could be empty.
_MANY_DOCUMENTS = 200
_EXPECTED = f"pass a file, a glob or a list of them ({', '.join(FORMATS)})"


class TextCorpus(Corpus):
    """Files for each split, or `paths` that are split automatically.

    From 200 documents on, the automatic split assigns each document by its hash; below that, each
    document is cut into three: its beginning for training, then validation, its end for test. Files
    are read in the order of their contents' digests, so paths and globs do not matter.
    """

    name = "text"

    def __init__(
        self,
        train: Paths | None = None,
        validation: Paths | None = None,
        test: Paths | None = None,
        paths: Paths | None = None,
        column: str = _COLUMN,
        validation_fraction: float = _FRACTION,
        test_fraction: float = _FRACTION,
    ) -> None:
        by_split = dict(zip(SPLITS, (train, validation, test), strict=True))
        by_split = {split: value for split, value in by_split.items() if value is not None}
        _check_exclusive(by_split, paths)
        self._fractions = None
        if paths is None:
            if (validation_fraction, test_fraction) != (_FRACTION, _FRACTION):
                raise ConfigError(
                    "data.validation_fraction and data.test_fraction only apply to data.paths"
                )
            self._files: dict[str, list[DocumentFile]] = {
                split: find_files(f"data.{split}", value, column)
                for split, value in by_split.items()
            }
        else:
            self._fractions = SplitFractions(validation_fraction, test_fraction)
            files = find_files("data.paths", paths, column)
            self._files = dict.fromkeys(self._fractions.splits(), files)
        if column != _COLUMN and not any(file.tabular for file in self._all_files):
            raise ConfigError(
                f"data.column={column!r} has no effect: .txt files have no columns; leave it out"
            )

    @property
    def _all_files(self) -> list[DocumentFile]:
        return [file for files in self._files.values() for file in files]

    def splits(self) -> tuple[str, ...]:
        return tuple(self._files)

    def documents(self, split: str) -> Iterator[str]:
        for file in self._files[split]:
            for document in file.documents():
                part = self._part(document, split)
                if part.strip():
                    yield part

    def split_digest(self, split: str) -> str:
        fractions = self._fractions
        rule = [split, fractions.validation, fractions.test] if fractions else None
        return digest_of({"files": [file.identity for file in self._files[split]], "rule": rule})

    def _part(self, document: str, split: str) -> str:
        if self._fractions is None:
            return document
        if not self._has_many_documents:
            return self._fractions.part_of(document, split)
        return document if self._fractions.split_of(document.encode()) == split else ""

    @cached_property
    def _has_many_documents(self) -> bool:
        return sum(file.count() for file in self._files["train"]) >= _MANY_DOCUMENTS


def find_files(key: str, paths: Paths, column: str) -> list[DocumentFile]:
    """Return the files that the setting `key` names, sorted by the digests of their contents.

    That order, unlike one by name, does not depend on where the files are.
    """
    patterns = [paths] if isinstance(paths, str) else list(paths)
    if not patterns:
        raise ConfigError(f"{key} is an empty list; {_EXPECTED}")
    unique = {path.resolve(): path for pattern in patterns for path in _matches(key, pattern)}
    files = [_open(path, key, column) for path in unique.values()]
    return sorted(files, key=lambda file: file.identity)


def _check_exclusive(by_split: dict[str, Paths], paths: Paths | None) -> None:
    if paths is not None and by_split:
        raise ConfigError(
            f"data.paths is split automatically and cannot be combined with"
            f" data.{', data.'.join(by_split)}; use one or the other"
        )
    if paths is None and not by_split:
        raise ConfigError(
            "data=text needs files: set data.train, data.validation and data.test (those that "
            "you need), or data.paths for an automatic split"
        )


def _matches(key: str, pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        raise ConfigError(f"{key}: '{pattern}' is a folder; pass its files: '{pattern}/*.txt'")
    if path.is_file():
        return [path]
    if not glob.has_magic(pattern):
        hint = did_you_mean(path.name, os.listdir(path.parent) if path.parent.is_dir() else [])
        raise ConfigError(f"{key}: '{pattern}' does not exist{hint}; {_EXPECTED}")
    matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
    files = [match for match in matches if match.is_file()]
    if not files:
        raise ConfigError(f"{key}: '{pattern}' matches no file; {_EXPECTED}")
    return files


def _open(path: Path, key: str, column: str) -> DocumentFile:
    if path.suffix not in FORMATS:
        raise ConfigError(
            f"{key}: '{path}' has the unsupported suffix '{path.suffix}' (supported: "
            f"{', '.join(FORMATS)}); convert or rename it"
        )
    if path.stat().st_size == 0:
        raise ConfigError(f"{key}: '{path}' is empty; pass a file with text in it")
    return FORMATS[path.suffix](path, key, column)
