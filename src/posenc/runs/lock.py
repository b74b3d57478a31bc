"""File locks managed by the kernel, which releases them when their owner exits for any reason.

On a shared file system they exclude processes on other machines if the system supports `flock`
across machines, as NFS does unless it is mounted with `nolock` or `local_lock`.
"""

import errno
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from posenc.config.errors import RunError

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of `flock` on file systems without locks, such as Lustre mounted without `flock`."""
LOCK_TIMEOUT = 2.0
"""Seconds to wait for a run's lock, which other processes hold briefly to read the run's status."""


@contextmanager
def lock(path: Path, *, timeout: float | None = None) -> Iterator[bool]:
    """Hold an exclusive lock on the file `path`, and yield whether it was acquired.

    Gives up after `timeout` seconds; None waits indefinitely. Raises RunError if the file system
    does not support locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + (timeout or 0.0)
    operation = fcntl.LOCK_EX if timeout is None else fcntl.LOCK_EX | fcntl.LOCK_NB
    with path.open("a") as file:
        while not (acquired := _flock(file, operation)) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield acquired


def is_locked(path: Path) -> bool:
    """Whether a running process holds an exclusive lock on the file."""
    if not path.exists():
        return False
    # A shared lock, so that two concurrent readers do not mistake each other for the owner.
    with path.open() as file:
        return not _flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _flock(file: IO[str], operation: int) -> bool:
    try:
        fcntl.flock(file, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise RunError(
            f"{file.name}: the file system does not support file locks ({error.strerror}), without"
            f" which two processes could write to the same run; mount it with flock, or set"
            f" outputs_dir to a folder on another file system"
        ) from None
    return True
