"""A corpus from the Hugging Face Hub at a pinned revision."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from posenc.config.errors import ConfigError, first_line
from posenc.config.settings import SPLITS
from posenc.data.corpus import Corpus, json_digest

_TIMEOUT_SECONDS = 5.0
_BATCH_ROWS = 1000
_COMMIT = re.compile("[0-9a-f]{40}")


class HubCorpus(Corpus):
    """The configuration `name` of the dataset `path` at the commit `revision`.

    Every row is a document, unless `document_start` is set: then every row is a line, and each line
    that matches this regular expression starts a new document. The files are downloaded once into
    the Hub library's cache (HF_HOME); later runs need no network.
    """

    def __init__(
        self,
        path: str,
        name: str,
        revision: str,
        column: str,
        document_start: str | None,
        vocab_size: int | None = None,
    ) -> None:
        if not _COMMIT.fullmatch(revision):
            raise ConfigError(
                f"data.revision: '{revision}' can change; use a full commit hash (40 hexadecimal"
                " digits)"
            )
        self.path, self.name, self.revision, self.column = path, name, revision, column
        self.document_start, self.vocab_size = document_start, vocab_size
        try:
            self._start_pattern = re.compile(document_start) if document_start is not None else None
        except re.error as error:
            raise ConfigError(
                f"data.document_start: '{document_start}' is not a regular expression: {error}"
            ) from None

    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self._dataset)

    def documents(self, split: str) -> Iterator[str]:
        rows = self._rows(split)
        documents = rows if self._start_pattern is None else _join_lines(rows, self._start_pattern)
        return (document for document in documents if document.strip())

    def split_digest(self, split: str) -> str:
        return json_digest([self.digest(), split])

    def digest(self) -> str:
        """Return a hash of the commit and the settings, which needs no download."""
        return json_digest([self.path, self.name, self.revision, self.column, self.document_start])

    def _rows(self, split: str) -> Iterator[str]:
        for batch in self._dataset[split].iter(batch_size=_BATCH_ROWS):
            if self.column not in batch:
                raise ConfigError(
                    f"data.column: {self.path} has no column '{self.column}' (available:"
                    f" {', '.join(batch)})"
                )
            yield from batch[self.column]

    @cached_property
    def _dataset(self) -> Any:
        """The splits by name, read lazily from the downloaded files."""
        from datasets import load_dataset

        folder = self._download()
        try:
            return load_dataset(folder, self.name, streaming=True)
        except (ValueError, OSError) as error:
            raise ConfigError(
                f"data.name: '{self.name}' of {self.path} cannot be loaded: {error}"
            ) from None

    def _download(self) -> str:
        """Return the folder of the commit in the cache, downloading it if the Hub is reachable.

        A request with a short timeout tests whether it is; otherwise only the cache is used.
        """
        from huggingface_hub import HfApi, snapshot_download

        reason = ""
        try:
            HfApi().dataset_info(self.path, revision=self.revision, timeout=_TIMEOUT_SECONDS)
        except Exception as error:
            reason = first_line(error) or type(error).__name__
        try:
            return snapshot_download(
                self.path,
                repo_type="dataset",
                revision=self.revision,
                allow_patterns=["README.md", f"{self.name}/*"],
                local_files_only=bool(reason),
            )
        except Exception as error:
            reason = reason or first_line(error) or type(error).__name__
            raise ConfigError(
                f"data: {self.path} ({self.name}) is not in the local cache and could not be"
                f" downloaded from the Hugging Face hub: {reason}; without a"
                " network, use data=python_stdlib or data=text data.train=FILE, or set HF_HOME to a"
                " cache that contains it"
            ) from None


def _join_lines(lines: Iterator[str], start_pattern: re.Pattern[str]) -> Iterator[str]:
    document: list[str] = []
    for line in lines:
        text = line.rstrip("\n")
        if start_pattern.search(text) and any(earlier.strip() for earlier in document):
            yield "".join(document)
            document = []
        document.append(f"{text}\n")
    yield "".join(document)
