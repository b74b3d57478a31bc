"""Files that are either wholly there or not there at all."""

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from posenc.config.errors import RunError

DISK_FULL = "the disk is full; free some space and type the same command again"


def is_disk_full(error: BaseException) -> bool:
    """Whether there was no space left, or none of the user's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_atomic(path: Path, data: str | bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` so that a reader, or a crash, sees the old file or the new one.

    Not `durable`, the new file may be lost with the machine's power, as progress may.
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
    """Write `value` as sorted, indented JSON, atomically; NaN and infinity are refused."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_atomic(path, text, durable=durable)


def read_json(path: Path) -> Any:
    """The content of a JSON file; RunError where it is damaged."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); move it away") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file; a last line cut short by a crash is left out.

    RunError where another is damaged.
    """
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    except ValueError as error:
        raise RunError(f"{path} is damaged ({error}); move it away") from None


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append `row` to a JSON-lines file as one write."""
    with path.open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
