"""Document files: .txt (one document per file), .jsonl and .parquet (one per row)."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from posenc.config.errors import ConfigError, one_line
from posenc.runs.files import file_sha256, is_sparse

_BATCH_ROWS = 32


class DocumentFile(ABC):
    """One file of documents; `key` is the setting that names it, used in error messages."""

    tabular: ClassVar[bool]

    def __init__(self, path: Path, key: str, column: str) -> None:
        self.path, self.column = path, column
        self.label = f"{key}: '{path}'"

    @abstractmethod
    def documents(self) -> Iterator[str]:
        """Yield the documents in file order, including blank ones; a null in Parquet is skipped."""

    @cached_property
    def content_key(self) -> tuple[str, ...]:
        """Everything that determines `documents()`: suffix, contents and column, not the path."""
        column = (self.column,) if self.tabular else ()
        self._state = self._read_state()
        return (self.path.suffix, self._content_digest(), *column)

    def check_unchanged(self) -> None:
        """Raise ConfigError if the file has changed since `content_key` was computed."""
        if self._read_state() != self._state:
            raise ConfigError(
                f"{self.label} changed while it was being read; rerun the command once the file is"
                " complete"
            )

    def _read_state(self) -> tuple[int, int, int]:
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _content_digest(self) -> str:
        return file_sha256(self.path)

    def _missing_column_error(self, label: str, columns: list[str]) -> ConfigError:
        return ConfigError(
            f"{label} has no column '{self.column}'; set data.column to one of its columns:"
            f" {', '.join(columns)}"
        )


class _Utf8File(DocumentFile):
    def _content_digest(self) -> str:
        """Return the digest of the contents; raises ConfigError if they are not UTF-8."""
        if is_sparse(self.path):
            raise ConfigError(
                f"{self.label} is a sparse file that is almost entirely holes; use another file"
            )
        digest, offset = sha256(), 0
        with self.path.open("rb") as file:
            for line in file:
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    raise ConfigError(
                        f"{self.label} is not UTF-8 at byte {offset + error.start}; save it as"
                        " UTF-8"
                    ) from None
                digest.update(line)
                offset += len(line)
        return digest.hexdigest()


class TextFile(_Utf8File):
    tabular = False

    def documents(self) -> Iterator[str]:
        yield self.path.read_bytes().decode()


class JsonLinesFile(_Utf8File):
    tabular = True

    def __init__(self, path: Path, key: str, column: str) -> None:
        super().__init__(path, key, column)
        next(self.documents(), None)  # raises ConfigError if the first row is invalid

    def documents(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace():
                    yield self._parse_line(line, f"{self.label}, line {number}")

    def _parse_line(self, line: bytes, label: str) -> str:
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{label} is not JSON ({error}); write one object per line") from None
        if not isinstance(row, dict):
            raise ConfigError(
                f"{label} is of type {type(row).__name__}; write one JSON object per line"
            )
        if self.column not in row:
            raise self._missing_column_error(label, sorted(row))
        text = row[self.column]
        if not isinstance(text, str):
            raise ConfigError(
                f"{label}: '{self.column}' is of type {type(text).__name__}, not a string"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{label}: the string contains an unpaired surrogate, which is not valid Unicode;"
                " remove it"
            ) from None
        return text


class ParquetFile(DocumentFile):
    tabular = True

    def __init__(self, path: Path, key: str, column: str) -> None:
        super().__init__(path, key, column)
        try:
            schema = pq.read_schema(path)
        except pa.ArrowInvalid:
            raise ConfigError(f"{self.label} is not a Parquet file; convert or rename it") from None
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(f"{self.label} cannot be read: {one_line(error)}") from None
        if column not in schema.names:
            raise self._missing_column_error(self.label, schema.names)
        if (count := schema.names.count(column)) > 1:
            raise ConfigError(
                f"{self.label} has {count} columns named '{column}'; rename all but one"
            )
        dtype = schema.field(column).type
        values = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        if not (pa.types.is_string(values) or pa.types.is_large_string(values)):
            raise ConfigError(f"{self.label}: column '{column}' has type {dtype}, not string")

    def documents(self) -> Iterator[str]:
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=[self.column]):
                    yield from (text for text in batch.column(0).to_pylist() if text is not None)
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{self.label}: a value in column '{self.column}' is not UTF-8 at byte"
                f" {error.start}; save it as UTF-8"
            ) from None
        except (pa.ArrowException, OSError) as error:
            raise ConfigError(
                f"{self.label} is corrupt ({error}); replace it with an intact copy"
            ) from None


FORMATS: dict[str, type[DocumentFile]] = {
    ".txt": TextFile,
    ".jsonl": JsonLinesFile,
    ".parquet": ParquetFile,
}
