"""A corpus of local files."""

from collections.abc import Iterator
from functools import cached_property

from posenc.config.errors import ConfigError
from posenc.data.corpus import SPLITS, Corpus
from posenc.data.digest import digest_of
from posenc.data.find import Paths, find_files
from posenc.data.formats import DocumentFile
from posenc.data.splits import Shares

_COLUMN = "text"
_SHARE = 0.05
# With fewer, a share of 0.05 drawn by hash could come out empty.
_MANY_DOCUMENTS = 200


class TextCorpus(Corpus):
    """Files named by split, or `paths` that are split automatically.

    The automatic split is by the hash of each document from 200 documents on; below, each
    document is cut in three: its beginning for training, then validation, and its end for test.
    Files are taken in the order of their contents, so that neither paths nor globs count.
    """

    name = "text"

    def __init__(
        self,
        train: Paths | None = None,
        validation: Paths | None = None,
        test: Paths | None = None,
        paths: Paths | None = None,
        column: str = _COLUMN,
        validation_share: float = _SHARE,
        test_share: float = _SHARE,
    ) -> None:
        named = dict(zip(SPLITS, (train, validation, test), strict=True))
        given = {split: value for split, value in named.items() if value is not None}
        _one_way(given, paths)
        self._shares = Shares(validation_share, test_share) if paths is not None else None
        if paths is None and (validation_share, test_share) != (_SHARE, _SHARE):
            raise ConfigError("data.validation_share, data.test_share: only with data.paths")
        self._files: dict[str, list[DocumentFile]] = {
            split: find_files(f"data.{split}", value, column) for split, value in given.items()
        }
        if self._shares is not None and paths is not None:
            files = find_files("data.paths", paths, column)
            self._files = dict.fromkeys(self._shares.splits(), files)
        if column != _COLUMN and not any(file.tabular for file in self._all_files):
            raise ConfigError(f"data.column: '{column}', but .txt files have no columns; leave it")

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
        rule = [split, self._shares.validation, self._shares.test] if self._shares else None
        return digest_of({"files": [f.identity for f in self._files[split]], "rule": rule})

    def _part(self, document: str, split: str) -> str:
        if self._shares is None:
            return document
        if not self._has_many_documents:
            return self._shares.part_of(document, split)
        return document if self._shares.split_of(document.encode()) == split else ""

    @cached_property
    def _has_many_documents(self) -> bool:
        files = self._files["train"]
        return sum(file.count() for file in files) >= _MANY_DOCUMENTS


def _one_way(given: dict[str, Paths], paths: Paths | None) -> None:
    if paths is not None and given:
        raise ConfigError(
            f"data.paths is split automatically, so it excludes data.{', data.'.join(given)}; "
            "give the one or the other"
        )
    if paths is None and not given:
        raise ConfigError(
            "data=text needs files: give data.train, data.validation and data.test (those that "
            "you need), or data.paths to be split automatically"
        )
