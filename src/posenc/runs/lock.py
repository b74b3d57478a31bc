"""File locks managed by the kernel, which releases them when their owner exits for any reason.

On a shared file system they exclude processes on other machines if the system supports `flock`
across machines, as NFS does unless it is mounted with `nolock` or `local_lock`; `docs/runs.md` says
when a lock is lost or kept after a failure.
"""

import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from posenc.config.errors import RunError
from posenc.runs.files import NotRegularFileError, open_regular

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of `flock` on file systems without locks, such as Lustre mounted without `flock`."""
MAX_ATTEMPTS = 20
"""How many times a lock file is opened if it is moved while a process waits for it."""
LOCK_TIMEOUT = 2.0
"""Seconds to wait for a run's lock, which other processes hold briefly to read the run's status."""


@contextmanager
def lock(path: Path, *, timeout: float | None = None) -> Iterator[bool]:
    """Hold an exclusive lock on the file `path`, and yield whether it was acquired.

    Gives up after `timeout` seconds; None waits indefinitely. While the lock is held, the file
    contains this process's id and host name. Raises RunError if the file system does not support
    locks, if `path` is not a regular file, or if it contains anything but a holder's description.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        descriptor = _acquire(path, timeout, stack)
        if descriptor is not None:
            # Overwrite only a holder's description: the path may be a hard link to another file.
            if not re.fullmatch(rb"(\d{1,10}\b.{0,280}\n?)?\0*", os.pread(descriptor, 300, 0)):
                raise RunError(f"{path} is not a lock file; delete it or move it elsewhere")
            with suppress(OSError):  # the disk is full
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
        yield descriptor is not None


def _acquire(path: Path, timeout: float | None, stack: ExitStack) -> int | None:
    """Open and lock a file, and return its descriptor, which `stack` closes; None after `timeout`.

    If the file has been moved or deleted with its folder while this process waited, the file that
    is now at `path` is locked instead.
    """
    deadline = time.monotonic() + (timeout or 0.0)
    operation = fcntl.LOCK_EX if timeout is None else fcntl.LOCK_EX | fcntl.LOCK_NB
    for attempt in range(MAX_ATTEMPTS):
        try:
            descriptor = stack.enter_context(_open(path, os.O_RDWR | os.O_CREAT))
        except FileNotFoundError:
            raise RunError(f"{path.parent} has been deleted; rerun the command") from None
        while not _flock(path, descriptor, operation):
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)
        if _is_file_at(path, descriptor):
            return descriptor
        stack.close()
        time.sleep(0.01 * attempt)
    raise RunError(f"{path} keeps being moved or deleted; rerun the command")


@contextmanager
def wait_for_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on the file, calling `on_wait` first if another process holds it.

    For locks that may be held for minutes. Raises the same errors as `lock`.
    """
    with lock(path, timeout=0) as acquired:
        if acquired:
            yield
            return
    on_wait()
    with lock(path):
        yield


def is_locked(path: Path) -> bool:
    """Return whether a running process holds an exclusive lock on the file."""
    if not path.exists():
        return False
    # A shared lock, so that two concurrent readers do not mistake each other for the owner.
    with _open(path, os.O_RDONLY) as descriptor:
        return not _flock(path, descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def describe_holder(path: Path) -> str:
    """Return the holder of a lock: `another process (pid 12 on host)`, or a thread of this one."""
    contents = b""
    with suppress(FileNotFoundError), _open(path, os.O_RDONLY) as descriptor:
        contents = os.pread(descriptor, 300, 0)
    holder = re.fullmatch(rb"(\d{1,10}) ([\w.-]{1,255})\n", contents)
    if not holder:  # it has only just acquired the lock, or the disk is full
        return "another process"
    pid, host = holder[1].decode(), holder[2].decode()
    if (pid, host) == (str(os.getpid()), socket.gethostname()):
        return "another thread of this process"
    return f"another process (pid {pid} on {host})"


def _is_file_at(path: Path, descriptor: int) -> bool:
    """Return whether `path` is still the file that was opened."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):
            return False
        raise


@contextmanager
def _open(path: Path, flags: int) -> Iterator[int]:
    """Open a lock file without blocking, even if it is a pipe, and yield its descriptor."""
    try:
        descriptor = open_regular(path, flags | os.O_NOFOLLOW)
    except NotRegularFileError as error:
        raise RunError(f"{path} is {error}, so it cannot be a lock file; delete it") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _flock(path: Path, descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise RunError(
            f"{path}: the file system does not support file locks ({error.strerror}), which keep"
            f" two processes from writing the same files; mount it with flock, or set outputs_dir"
            f" (for runs) or cache_dir (for data) to a folder on another file system"
        ) from None
    return True
