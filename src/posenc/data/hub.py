"""A corpus from the Hugging Face Hub at a pinned revision."""

import hashlib
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from posenc.config.errors import ConfigError, first_line
from posenc.config.settings import SPLITS
from posenc.config.values import json_digest
from posenc.data.corpus import SplitFractions, SplittableCorpus

_TIMEOUT_SECONDS = 5.0
_BATCH_ROWS = 1000
_GIT_ID = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")
_SHARD = re.compile(r"(.*)-[0-9]{5}-of-([0-9]{5})(.*)")


class HubCorpus(SplittableCorpus):
    """The configuration `name` of the dataset `path` at the commit `revision`.

    Without a name, it is the dataset's only configuration. Only README.md and `folder` are
    downloaded; `folder` defaults to `name` or, without a name, to the whole dataset. The files are
    kept in the `huggingface_hub` cache (HF_HOME); later runs need no network access.

    Every row is a document, unless `document_start` is set: then every row is a line, and each line
    that matches this regular expression starts a new document. If either fraction is set, the
    validation and test splits are taken from the train split: documents are assigned by their
    hashes or, if there are fewer than 200, each is cut into three parts. Raises ConfigError if the
    revision is not a commit.
    """

    requires_download = True

    def __init__(
        self,
        path: str | None,
        name: str | None,
        revision: str | None,
        column: str,
        document_start: str | None,
        vocab_size: int | None = None,
        folder: str | None = None,
        validation_fraction: float | None = None,
        test_fraction: float | None = None,
    ) -> None:
        if path is None or revision is None:
            examples = {"data.path=OWNER/NAME": path, "data.revision=COMMIT": revision}
            missing = [example for example, value in examples.items() if value is None]
            raise ConfigError(f"data=hub needs a dataset: set {' and '.join(missing)}")
        if not _GIT_ID.fullmatch(revision):
            raise ConfigError(
                f"data.revision: '{revision}' is not a full commit hash (40 lowercase hexadecimal"
                " digits); branches and tags can change"
            )
        self.path, self.config_name, self.revision, self.column = path, name, revision, column
        self.document_start, self.vocab_size = document_start, vocab_size
        self.name = name or path.rpartition("/")[2]
        self.folder = folder or name
        self._custom_folder = folder
        self._fractions = None
        self._files: dict[str, list[Path]] = {}
        if validation_fraction is not None or test_fraction is not None:
            self._fractions = SplitFractions(validation_fraction or 0.0, test_fraction or 0.0)
        try:
            self._start_pattern = re.compile(document_start) if document_start is not None else None
        except re.error as error:
            raise ConfigError(
                f"data.document_start: '{document_start}' is not a regular expression: {error}"
            ) from None

    def splits(self) -> tuple[str, ...]:
        if self._fractions is not None:
            return self._fractions.splits()
        return tuple(split for split in SPLITS if split in self._dataset)

    def split_digest(self, split: str) -> str:
        return json_digest([self.digest(), split])

    def digest(self) -> str:
        """Return a hash of the commit and the settings; this needs no download."""
        values: list[Any] = [self.path, self.config_name, self.revision, self.column]
        values.append(self.document_start)
        if self._custom_folder is not None or self._fractions is not None:
            fractions = self._fractions and [self._fractions.validation, self._fractions.test]
            values += [self._custom_folder, fractions]
        return json_digest(values)

    def _documents(self, split: str) -> Iterator[str]:
        rows = self._rows(split)
        return rows if self._start_pattern is None else _join_lines(rows, self._start_pattern)

    def _rows(self, split: str) -> Iterator[str]:
        dataset = self._dataset[split]
        for file in self._files.get(split, []):
            if not _matches_digest(file):
                raise ConfigError(
                    f"data: {file} is not the file that the Hub has for this commit; delete"
                    f" {file.resolve()} to download it again"
                )
        try:
            for batch in dataset.iter(batch_size=_BATCH_ROWS):
                if self.column not in batch:
                    raise ConfigError(
                        f"data.column: {self.path} has no column '{self.column}' (available:"
                        f" {', '.join(batch)})"
                    )
                for text in batch[self.column]:
                    if isinstance(text, str):
                        yield text
                    elif text is not None:
                        raise ConfigError(
                            f"data.column: '{self.column}' of {self.path} is of type"
                            f" {type(text).__name__}, not a string"
                        )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(
                f"data: {self.path} cannot be read ({first_line(error)}); delete its folder in the"
                f" huggingface_hub cache (HF_HOME) to download it again"
            ) from None

    @cached_property
    def _dataset(self) -> Any:
        """The splits by name, read lazily from the downloaded files."""
        from datasets import load_dataset_builder

        folder = self._download()
        try:
            builder = load_dataset_builder(folder, self.config_name)
            self._files = self._data_files(builder.config.data_files, Path(folder))
            return builder.as_streaming_dataset()
        except (ValueError, OSError) as error:
            raise ConfigError(
                f"data.name={self.config_name or 'null'}: {self.path} cannot be loaded: {error}"
            ) from None

    def _data_files(self, data_files: Any, folder: Path) -> dict[str, list[Path]]:
        """Return the files of each split.

        Raises ConfigError if README.md names files that are not part of the commit. They would not
        be covered by the digest, and could be any file on this machine.
        """
        files = {str(split): list(map(Path, paths)) for split, paths in (data_files or {}).items()}
        repository = folder.resolve().parents[1]  # the files of a commit are links to ../../blobs
        for path in chain(*files.values()):
            is_in_folder = path.is_relative_to(folder) and ".." not in path.parts
            if not is_in_folder or not path.resolve().is_relative_to(repository):
                raise ConfigError(
                    f"data: README.md of {self.path} names {path}, which is not part of this commit"
                )
        return files

    def _download(self) -> str:
        """Return the folder of the commit in the cache, downloading it if the Hub is reachable.

        A request with a short timeout tests whether the Hub is reachable. If it is not, only the
        cache is used.
        """
        from huggingface_hub import HfApi, snapshot_download

        reason = ""
        try:
            HfApi().dataset_info(self.path, revision=self.revision, timeout=_TIMEOUT_SECONDS)
        except Exception as error:
            reason = first_line(error) or type(error).__name__
        try:
            folder = snapshot_download(
                self.path,
                repo_type="dataset",
                revision=self.revision,
                allow_patterns=["README.md", f"{self.folder}/*"] if self.folder else None,
                local_files_only=bool(reason),
            )
        except Exception as error:
            reason = reason or first_line(error) or type(error).__name__
            raise ConfigError(
                f"data: {self.path} ({self.name}) is not in the local cache and could not be"
                f" downloaded from the Hugging Face Hub: {reason}; without network"
                " access, use data=python_stdlib or data=text data.train=FILE, or set HF_HOME to a"
                " cache that contains it"
            ) from None
        if missing := _missing_shards(Path(folder)):
            raise ConfigError(
                f"data: {missing[0]} of {self.path} is missing from the local cache;"
                f" connect to the network to download it, or delete {folder}"
            )
        return folder


def _matches_digest(file: Path) -> bool:
    """Return whether a cached file matches the digest by which `huggingface_hub` names it.

    Large files are named by their SHA-256, all others by their git object ID.
    """
    blob = file.resolve()
    if not (is_git_blob := _GIT_ID.fullmatch(blob.name)) and not _SHA256.fullmatch(blob.name):
        return True
    digest = hashlib.sha1(usedforsecurity=False) if is_git_blob else hashlib.sha256()
    if is_git_blob:
        digest.update(f"blob {blob.stat().st_size}\0".encode())
    with blob.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: digest).hexdigest() == blob.name


def _missing_shards(folder: Path) -> list[str]:
    """Return the missing shards of files that are named `...-00000-of-00002...`.

    An interrupted download can leave a set incomplete, which `huggingface_hub` may not detect.
    """
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*")}
    expected = {
        f"{match[1]}-{index:05}-of-{match[2]}{match[3]}"
        for match in map(_SHARD.fullmatch, files)
        if match
        for index in range(int(match[2]))
    }
    return sorted(expected - files)


def _join_lines(lines: Iterator[str], start_pattern: re.Pattern[str]) -> Iterator[str]:
    document: list[str] = []
    for line in lines:
        text = line.rstrip("\n")
        if start_pattern.search(text) and any(earlier.strip() for earlier in document):
            yield "".join(document)
            document = []
        document.append(f"{text}\n")
    yield "".join(document)
