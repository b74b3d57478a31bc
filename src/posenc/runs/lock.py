"""File locks held by the kernel: released as soon as their owner exits, however it exits."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SHORT_WAIT = 2.0
"""Seconds to wait for a lock that a reader of statuses may hold for a moment."""


@contextmanager
def lock(path: Path, *, wait: bool, patience: float = 0.0) -> Iterator[bool]:
    """Hold an exclusive lock on the file `path`; yields whether it was obtained.

    Without `wait`, gives up after `patience` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    with path.open("a") as file:
        while not (obtained := _flock(file, operation)) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield obtained


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    if not path.exists():
        return False
    with path.open() as file:  # a shared lock, so that two readers do not see each other as owners
        return not _flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _flock(file: IO[str], operation: int) -> bool:
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        return False
    return True
