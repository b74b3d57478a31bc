"""A corpus from the Hugging Face hub, by pinned revision."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from posenc.config.errors import ConfigError
from posenc.data.corpus import SPLITS, Corpus
from posenc.data.digest import digest_of

_TIMEOUT = 5.0  # seconds
_ROWS = 1000
_COMMIT = re.compile("[0-9a-f]{40}")


class HubCorpus(Corpus):
    """The dataset `path` at the commit `revision`, its files in the folder `config`.

    Without `document_start` every row is a document. With it (a regular expression) every row
    is a line, and a line that it matches begins a document. Downloaded once into the cache of
    the hub's own library (HF_HOME) and read from there, without a network too.
    """

    def __init__(
        self,
        path: str,
        config: str,
        revision: str,
        column: str,
        document_start: str | None,
        words: int | None = None,
    ) -> None:
        if not _COMMIT.fullmatch(revision):
            raise ConfigError(
                f"data.revision: '{revision}' can change; give the 40 hexadecimal digits of a "
                "commit"
            )
        self.path, self.name, self.revision, self.column = path, config, revision, column
        self.document_start, self.words = document_start, words
        try:
            self._start = re.compile(document_start) if document_start is not None else None
        except re.error as error:
            raise ConfigError(f"data.document_start: '{document_start}': {error}") from None

    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self._dataset)

    def documents(self, split: str) -> Iterator[str]:
        rows = self._rows(split)
        documents = rows if self._start is None else _joined(rows, self._start)
        return (document for document in documents if document.strip())

    def split_digest(self, split: str) -> str:
        return digest_of([self.digest(), split])

    def digest(self) -> str:
        """The commit stands for the contents, so a prepared corpus needs neither hub nor cache."""
        return digest_of([self.path, self.name, self.revision, self.column, self.document_start])

    def _rows(self, split: str) -> Iterator[str]:
        for batch in self._dataset[split].iter(batch_size=_ROWS):
            if self.column not in batch:
                raise ConfigError(
                    f"data.column: '{self.column}' is not a column of {self.path}; it has "
                    f"{', '.join(batch)}"
                )
            yield from batch[self.column]

    @cached_property
    def _dataset(self) -> Any:
        """The splits by name, each of them streamed from the downloaded files."""
        from datasets import load_dataset

        folder = self._download()
        try:
            return load_dataset(folder, self.name, streaming=True)
        except (ValueError, OSError) as error:
            raise ConfigError(f"data.config: '{self.name}' of {self.path}: {error}") from None

    def _download(self) -> str:
        """The folder of the commit in the cache; one unanswered request, and it must be there."""
        from huggingface_hub import HfApi, snapshot_download

        reason = ""
        try:
            HfApi().dataset_info(self.path, revision=self.revision, timeout=_TIMEOUT)
        except Exception as error:
            reason = _first_line(error)
        try:
            return snapshot_download(
                self.path,
                repo_type="dataset",
                revision=self.revision,
                allow_patterns=["README.md", f"{self.name}/*"],
                local_files_only=bool(reason),
            )
        except Exception as error:
            raise self._unreachable(reason or _first_line(error)) from None

    def _unreachable(self, reason: str) -> ConfigError:
        return ConfigError(
            f"data: {self.path} ({self.name}) is not in the local cache and the Hugging Face hub "
            f"does not give it: {reason}; without a network use data=python_stdlib or data=text "
            "data.train=FILE, or set HF_HOME to a cache into which it was downloaded before"
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def _joined(rows: Iterator[str], start: re.Pattern[str]) -> Iterator[str]:
    document: list[str] = []
    for row in rows:
        line = row.rstrip("\n")
        if start.search(line) and any(before.strip() for before in document):
            yield "".join(document)
            document = []
        document.append(f"{line}\n")
    yield "".join(document)
