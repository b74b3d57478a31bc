"""A lock that the kernel holds: free again the moment its owner is gone, however it went."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold an exclusive lock on the file `path`; yields whether it was obtained."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    if not path.exists():
        return False
    with lock(path, wait=False) as obtained:
        return not obtained
