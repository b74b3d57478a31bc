"""Files that are written completely or not at all, and JSON lines."""

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from posenc.config.errors import RunError

DISK_FULL_MESSAGE = "the disk is full; free some space and run the same command again"


def is_disk_full(error: BaseException) -> bool:
    """Whether an exception means that the disk, or the user's quota on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_atomic(path: Path, data: str | bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` so that readers, and a crash, see the old file or the new one.

    Without `durable`, a power failure may lose the new file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    payload = data.encode() if isinstance(data, str) else data
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Write `value` atomically as sorted, indented JSON; NaN and infinity raise ValueError."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomic(path, text, durable=durable)


def read_json(path: Path) -> Any:
    """Read a JSON file; raises RunError if it is damaged."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise _damaged(path, error) from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a JSON-lines file, without a last line that a crash cut short.

    Raises RunError if any other line is damaged.
    """
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    except ValueError as error:
        raise _damaged(path, error) from None


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append `row` to a JSON-lines file in one write."""
    with path.open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def truncate_lines(path: Path, step: int) -> None:
    """Drop the rows of a JSON-lines file after `step`, from which training resumes."""
    kept = [row for row in read_lines(path) if row["step"] <= step]
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in kept))


def _damaged(path: Path, error: ValueError) -> RunError:
    return RunError(f"{path} is damaged ({error}); move it away")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
