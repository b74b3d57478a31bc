"""Atomic writes, JSON and JSON-lines files, and symbolic links."""

import errno
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from posenc.config.errors import RunError, abbreviate
from posenc.config.values import matches_type

DISK_FULL_MESSAGE = "the disk is full; free some space and rerun the same command"
MAX_TEXT_BYTES = 500_000_000
"""The largest text file that is read: the metrics of about three million steps."""
SPARSE_BYTES = 2**30
READ_ONLY_MESSAGE = (
    "the file system has become read-only, perhaps after a disk error; make it writable and rerun"
    " the same command"
)


def is_disk_full(error: BaseException) -> bool:
    """Whether an exception means that the disk, or the user's quota on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_message(error: BaseException) -> str | None:
    """Return the message for a full or read-only disk, after which a run can resume, or None."""
    if is_disk_full(error):
        return DISK_FULL_MESSAGE
    read_only = isinstance(error, OSError) and error.errno == errno.EROFS
    return READ_ONLY_MESSAGE if read_only else None


def write_atomic(path: Path, data: str | bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` atomically: readers see the old or the new file, even after a crash.

    Unless `durable`, the new file may be lost in a power failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write `value` atomically as sorted, indented JSON. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomic(path, text, durable=durable)


def read_text(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the contents of a regular file.

    Raises OSError for a pipe, which might never end, and ValueError for a file that has more than
    `max_bytes` or is not UTF-8.
    """
    if not path.is_file():
        raise OSError("not a regular file")
    if (size := path.stat().st_size) > max_bytes:
        raise ValueError(f"it has {size:,} bytes, more than the limit of {max_bytes:,}")
    return path.read_text(encoding="utf-8")


def is_mostly_holes(path: Path) -> bool:
    """Whether a large file has almost no data, so that reading it would take minutes for nothing.

    Some file systems do not report the allocated blocks, or compress the data. So the file must
    also have a hole.
    """
    stat = path.stat()
    if stat.st_size < SPARSE_BYTES or 512 * stat.st_blocks > stat.st_size // 100:
        return False
    with path.open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE) < stat.st_size


def read_json(path: Path, default: Any = None) -> Any:
    """Return the contents of a JSON file. Raises RunError if it is corrupt.

    If the file does not exist and `default` is not None, returns `default`.
    """
    if default is not None and not path.exists():
        return default
    try:
        return _parse(read_text(path))
    except (ValueError, OSError, RecursionError) as error:
        raise corrupt_file_error(path, error) from None


def _parse(text: str) -> Any:
    """Parse JSON. Raises ValueError also for duplicate keys and numbers that are not finite.

    So do strings that cannot be printed, because they contain half of a surrogate pair.
    """
    value = _DECODER.decode(text)
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _finite_float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{abbreviate(text)} is not a finite number")
    return value


def _without_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError for a duplicate key."""
    values = dict(items)
    if len(values) < len(items):
        counts = Counter(key for key, _ in items)
        raise ValueError(f"duplicate key {next(key for key in counts if counts[key] > 1)}")
    return values


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_duplicates, parse_float=_finite_float, parse_constant=_finite_float
)


def read_mapping(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file does not exist.

    `types` maps keys to their types. Other keys, which a later version may write, are not checked.
    Raises RunError if the file is corrupt, is not an object, or has a value of another type.
    """
    contents = read_json(path, {})
    if not isinstance(contents, dict):
        raise corrupt_file_error(path, "it is not a JSON object")
    known = [key for key in types if key in contents]
    if wrong := [key for key in known if not matches_type(contents[key], types[key])]:
        raise corrupt_file_error(path, f"wrong type: {', '.join(wrong)}")
    return contents


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file; a missing file has none.

    Skips a last line that a crash truncated. Raises RunError if any other line is corrupt.
    """
    if not path.exists():
        return []
    try:
        rows = [_parse(line) for line in read_text(path).split("\n")[:-1]]
    except (ValueError, OSError, RecursionError) as error:
        raise corrupt_file_error(path, error) from None
    if not all(isinstance(row, dict) for row in rows):
        raise corrupt_file_error(path, "not every line is a JSON object")
    return rows


def append_jsonl(path: Path, row: dict[str, Any]) -> None:
    """Append `row` to a JSON-lines file in a single write."""
    with open_to_append(path) as file:
        file.write(_jsonl_line(row))


def _jsonl_line(row: dict[str, Any]) -> bytes:
    return f"{json.dumps(row, allow_nan=False)}\n".encode()


class RowsDigest:
    """A digest of the rows of a JSON-lines file, to which rows can be added."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self._hash = hashlib.sha256()
        self.update(rows)

    def update(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._hash.update(_jsonl_line(row))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()[:16]


def open_to_append(path: Path) -> BinaryIO:
    """Open a file of a run to append to it. Raises OSError if the file is a symbolic link."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "ab")


def flush_to_disk(path: Path) -> None:
    """Wait until everything written to a file is on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def truncate_jsonl(path: Path, step: int) -> None:
    """Delete the rows of a JSON-lines file that come after `step`, from which training resumes.

    Raises RunError if the file is corrupt or a row has no step.
    """
    rows = read_jsonl(path)
    if not all(type(row.get("step")) is int for row in rows):
        raise corrupt_file_error(path, "a row has no step")
    kept = [row for row in rows if row["step"] <= step]
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in kept))


def corrupt_file_error(path: Path, error: object) -> RunError:
    """Return the error for a file of a run that cannot be used; `error` says why."""
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return RunError(f"{path} cannot be read ({error.strerror}); check the disk")
    return RunError(f"{path} is corrupt ({error}); delete it or move it elsewhere")


def contents(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield everything in a folder and its subfolders; nothing if there is no such folder."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from contents(entry.path)


def reject_links(paths: Iterable[Path | os.DirEntry[str]]) -> None:
    """Raise RunError if a file or folder of a run or an experiment is a symbolic link.

    It may be from someone else, and writing to it must not write elsewhere.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{os.fspath(path)} is a symbolic link; replace it by what it points to, or delete"
                f" it"
            )
