"""A lock that the kernel holds: free again the moment its owner is gone, however it went."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

INSTANT = 2.0  # seconds; a reader of states may hold a lock for a moment


@contextmanager
def lock(path: Path, *, wait: bool, patience: float = 0.0) -> Iterator[bool]:
    """Hold an exclusive lock on the file `path`; yields whether it was obtained.

    Without `wait` it tries for `patience` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience
    with path.open("a") as file:
        while not (obtained := _obtained(file, wait)) and time.monotonic() < until:
            time.sleep(0.05)
        yield obtained


def _obtained(file: IO[str], wait: bool) -> bool:
    return _flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    if not path.exists():
        return False
    with path.open() as file:  # shared, so that two who ask do not take each other for the owner
        return not _flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _flock(file: IO[str], operation: int) -> bool:
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        return False
    return True
