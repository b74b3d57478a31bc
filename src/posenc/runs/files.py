"""Atomic writes, regular files, JSON and JSON Lines files, and the contents of folders."""

import errno
import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from posenc.config.errors import RunError, abbreviate
from posenc.config.values import wrong_types

DISK_FULL_MESSAGE = "the disk is full; free some space and rerun the same command"
FILE_SIZE_MESSAGE = "a file has reached the size limit; raise it (ulimit -f) and rerun the command"
MAX_TEXT_BYTES = 500_000_000
"""The largest text file that is read: the metrics of about three million steps."""
MAX_DIGITS = 300
"""The maximum number of digits of an integer in a JSON file; more may not fit into a float."""
MAX_NESTED_FOLDERS = 50
"""The maximum depth of a run's folders; `shutil.rmtree` and others fail at about 1,000 levels."""
MIN_SPARSE_FILE_BYTES = 2**30
"""Smaller files are not checked for holes."""
READ_ONLY_MESSAGE = "the file system has become read-only; make it writable and rerun the command"


def is_disk_full(error: BaseException) -> bool:
    """Return whether an exception means that the disk, or the user's quota on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_message(error: BaseException) -> str | None:
    """Return a message if a run is interrupted because it cannot write to the disk, else None."""
    if is_disk_full(error):
        return DISK_FULL_MESSAGE
    messages = {errno.EFBIG: FILE_SIZE_MESSAGE, errno.EROFS: READ_ONLY_MESSAGE}
    return messages.get(error.errno or 0) if isinstance(error, OSError) else None


def write_atomic(path: Path, data: str | bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` atomically: readers see either the old or the new file.

    With `durable`, this holds even if the machine crashes: the data is flushed to disk first.
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


class NotRegularFileError(OSError):
    """A regular file was expected, but there is a folder, symbolic link, pipe, socket or device."""


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file and return its descriptor. Raises NotRegularFileError for anything else.

    Follows symbolic links unless `flags` contains O_NOFOLLOW. Does not block if `path` is a pipe
    whose other end no process has opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise NotRegularFileError("not a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularFileError("not a regular file")
    return descriptor


def read_text(path: Path, max_bytes: int = MAX_TEXT_BYTES, errors: str = "strict") -> str:
    """Return the contents of a regular file.

    `errors` is as in `bytes.decode`. Raises OSError for anything but a regular file, and
    ValueError for a file that is larger than `max_bytes` or not valid UTF-8.
    """
    with os.fdopen(open_regular(path), encoding="utf-8", errors=errors) as file:
        if (size := os.fstat(file.fileno()).st_size) > max_bytes:
            raise ValueError(f"it has {size:,} bytes, more than the limit of {max_bytes:,}")
        return file.read()


def is_sparse(path: Path) -> bool:
    """Whether a large file consists almost entirely of holes, and would take minutes to read.

    Some file systems do not report the allocated blocks, or compress the data, so the file must
    also contain a hole.
    """
    file_stat = path.stat()
    size, allocated = file_stat.st_size, 512 * file_stat.st_blocks
    if size < MIN_SPARSE_FILE_BYTES or allocated > size // 100:
        return False
    with path.open("rb") as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE) < size


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
    """Parse JSON. Raises ValueError if it is invalid, or not JSON that posenc would write.

    posenc never writes duplicate keys, numbers that are not finite, integers with more than
    MAX_DIGITS digits, or lone surrogates, which cannot be printed.
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


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer has more than {MAX_DIGITS} digits")
    return int(text)


def _without_duplicates(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError for a duplicate key."""
    values = dict(items)
    if len(values) < len(items):
        counts = Counter(key for key, _ in items)
        raise ValueError(f"duplicate key {next(key for key in counts if counts[key] > 1)}")
    return values


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_duplicates,
    parse_float=_finite_float,
    parse_int=_short_integer,
    parse_constant=_finite_float,
)


def read_mapping(path: Path, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file does not exist.

    `types` maps keys to their types. Other keys, which a later version may write, are not checked.
    Raises RunError if the file is corrupt, is not an object, or has a value of the wrong type.
    """
    contents = read_json(path, {})
    if not isinstance(contents, dict):
        raise corrupt_file_error(path, "it is not a JSON object")
    if wrong := wrong_types(contents, types):
        raise corrupt_file_error(path, f"wrong type: {', '.join(wrong)}")
    return contents


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file; a missing file has none.

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
    """Append `row` to a JSON Lines file in a single write."""
    with open_for_append(path) as file:
        file.write(_jsonl_line(row))


def _jsonl_line(row: dict[str, Any]) -> bytes:
    return f"{json.dumps(row, allow_nan=False)}\n".encode()


class RowsDigest:
    """A digest of the rows of a JSON Lines file, to which rows can be added."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self._hash = hashlib.sha256()
        self.update(rows)

    def update(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self._hash.update(_jsonl_line(row))

    def short_hexdigest(self) -> str:
        return self._hash.hexdigest()[:16]


def open_for_append(path: Path) -> BinaryIO:
    """Open a file of a run to append to it. Raises OSError if it is not a regular file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    try:
        return os.fdopen(open_regular(path, flags), "ab")
    except NotRegularFileError as error:
        raise NotRegularFileError(f"{path} is {error}; delete it or move it elsewhere") from None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush_to_disk(path: Path) -> None:
    """Wait until everything written to a file is on disk."""
    with os.fdopen(open_regular(path), "rb") as file:
        os.fsync(file.fileno())


def truncate_jsonl(path: Path, step: int) -> None:
    """Delete the rows of a JSON Lines file that come after `step`, from which training resumes.

    Raises RunError if the file is corrupt or a row has no step.
    """
    rows = read_jsonl(path)
    if not all(type(row.get("step")) is int for row in rows):
        raise corrupt_file_error(path, "a row has no step")
    kept = [row for row in rows if row["step"] <= step]
    write_atomic(path, b"".join(map(_jsonl_line, kept)))


def corrupt_file_error(path: Path, reason: object) -> RunError:
    """Return the error for a file of a run that cannot be used, with the reason."""
    if isinstance(reason, OSError) and reason.errno in (errno.EIO, errno.EACCES, errno.EPERM):
        remedy = "check the disk" if reason.errno == errno.EIO else "make it readable"
        return RunError(f"{path} cannot be read ({reason.strerror}); {remedy}")
    return RunError(f"{path} is corrupt ({reason}); delete it or move it elsewhere")


def walk_entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield everything in a folder and its subfolders; nothing if there is no such folder.

    Raises RunError if a folder cannot be read, or has more than MAX_NESTED_FOLDERS levels.
    """
    folders = [(os.fspath(folder), 0)] if os.path.isdir(folder) else []
    while folders:
        path, depth = folders.pop()
        if depth > MAX_NESTED_FOLDERS:
            raise RunError(f"{path}: more than {MAX_NESTED_FOLDERS} nested folders; delete them")
        try:
            with os.scandir(path) as entries:
                children = list(entries)
        except OSError as error:
            raise RunError(f"{path} cannot be read ({error.strerror}); make it readable") from None
        yield from children
        subfolders = [child.path for child in children if child.is_dir(follow_symlinks=False)]
        folders += [(subfolder, depth + 1) for subfolder in subfolders]


def reject_special_files(paths: Iterable[Path | os.DirEntry[str]]) -> None:
    """Raise RunError for anything in a run or an experiment that is not a file or a folder.

    In a run from someone else, a link could lead to other files, and a pipe could block forever.
    """
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{os.fspath(path)} is a symbolic link; replace it with what it points to, or"
                f" delete it"
            )
        if not (path.is_file() or path.is_dir()) and os.path.exists(path):
            raise RunError(f"{os.fspath(path)} is not a regular file; delete it")
