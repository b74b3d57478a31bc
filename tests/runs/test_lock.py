"""A lock is released when the process that holds it exits."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from posenc.config.errors import RunError
from posenc.runs.lock import describe_holder, is_locked, lock

HOLD_LOCK = """
import sys, pathlib
from posenc.runs.lock import lock
with lock(pathlib.Path(sys.argv[1]), timeout=0) as acquired:
    print(acquired, flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_released_when_its_owner_is_killed(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None and owner.stdout.readline() == "True\n"
        assert is_locked(file)
        with lock(file, timeout=0) as acquired:
            assert not acquired
        holder = f"another process (pid {owner.pid} on {socket.gethostname()})"
        assert describe_holder(file) == holder
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert not is_locked(file)


def test_a_process_that_waited_for_a_moved_lock_file_locks_the_new_one(tmp_path: Path) -> None:
    file, entered, leave = tmp_path / "run" / ".lock", threading.Event(), threading.Event()

    def hold() -> bool:
        with lock(file, timeout=60) as acquired:
            entered.set()
            return leave.wait(60) and acquired

    with ThreadPoolExecutor() as pool:
        with lock(file, timeout=0):
            holds = pool.submit(hold)
            time.sleep(0.2)  # until it waits for the file
            (tmp_path / "run").rename(tmp_path / "deleted")
            (tmp_path / "run").mkdir()
        assert entered.wait(60)
        with lock(file, timeout=0) as acquired:
            assert not acquired
        leave.set()
        assert holds.result()


def test_a_process_that_waited_for_a_lock_does_not_create_a_deleted_folder_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "run" / ".lock"
    with ThreadPoolExecutor() as pool:
        with lock(file, timeout=0):
            waiting = pool.submit(lock(file, timeout=60).__enter__)
            time.sleep(0.2)
            (tmp_path / "run").rename(tmp_path / "deleted")
        with pytest.raises(RunError, match="has been deleted"):
            waiting.result()
    assert not (tmp_path / "run").exists()


def test_a_hard_link_to_another_file_is_not_overwritten(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("precious")
    (tmp_path / ".lock").hardlink_to(thesis)
    with pytest.raises(RunError, match="not a lock file"), lock(tmp_path / ".lock"):
        pass
    assert thesis.read_text() == "precious"


def test_a_file_system_without_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(RunError, match="outputs_dir"), lock(tmp_path / ".lock"):
        pass


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_not_a_regular_file_is_an_error_and_does_not_block(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".lock")
    with pytest.raises(RunError, match="not a regular file"):
        is_locked(tmp_path / ".lock")
    with pytest.raises(RunError, match="not a regular file"), lock(tmp_path / ".lock"):
        pass


@pytest.mark.parametrize("contents", [b"", b"12", b"12 a\x1b[31mb\n", b"12 " + b"a" * 300])
def test_only_a_pid_and_a_hostname_are_printed(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / ".lock").write_bytes(contents)
    assert describe_holder(tmp_path / ".lock") == "another process"


def test_a_lock_of_this_process_is_described_as_that_of_another_thread(tmp_path: Path) -> None:
    with lock(tmp_path / ".lock"):
        assert describe_holder(tmp_path / ".lock") == "another thread of this process"
