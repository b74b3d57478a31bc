"""A launcher's side of `starter`: jobs that are forked rather than started."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from posenc.runs.environment import environment
from posenc.sweeps.exits import LOST

JOB = (sys.executable, "-m", "posenc.sweeps.job")
STARTER = (sys.executable, "-m", "posenc.sweeps.starter")
POLL_SECONDS = 0.05


def starter_of(command: Sequence[str], gpus: Sequence[str], code: Path | None) -> "Starter | None":
    """What forks the jobs that the command would start; None where they had better be started.

    CUDA does not outlive a fork, nor do some libraries on other systems.
    """
    if command == JOB and not gpus and sys.platform == "linux":
        return Starter(code)
    return None


class Starter:
    """A process that forks jobs which import from `code`; it ends with `close`, or its launcher."""

    def __init__(self, code: Path | None) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*STARTER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment(1, code),
                start_new_session=True,
            )
        self._channel.setblocking(False)
        self._ids, self._received = count(), b""
        self._forks: dict[int, Fork] = {}
        self.gone = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, arguments: Sequence[str], log: Path, around: dict[str, str]) -> "Fork":
        """A job with these arguments, its output appended to `log`."""
        number = next(self._ids)
        self._forks[number] = fork = Fork(self)
        told = {"id": number, "arguments": list(arguments), "log": str(log)}
        message = json.dumps(told | {"environment": around}).encode() + b"\n"
        self._channel.setblocking(True)
        with suppress(OSError):  # it is gone, which the next look finds out
            self._channel.sendall(message)
        self._channel.setblocking(False)
        self.look()  # or both sides wait to be read, once there are hundreds
        return fork

    def look(self) -> None:
        """Take note of what it has said since the last time."""
        with suppress(BlockingIOError, ConnectionError):
            while received := self._channel.recv(1 << 16):
                self._received += received
            self.gone = True
        *lines, self._received = self._received.split(b"\n")
        for answer in map(json.loads, lines):
            self._forks[answer["id"]].hear(answer)
        self.gone = self.gone or self._process.poll() is not None
        for fork in self._forks.values() if self.gone else ():
            fork.bereave()

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


class Fork:
    """A job's process, as far as a launcher treats one as it does `subprocess.Popen`."""

    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        self._due: int | None = None
        self.pid: int | None = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._starter.look()
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(POLL_SECONDS)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it and whatever it started."""
        self._send(signal.SIGKILL)

    def hear(self, answer: dict[str, int]) -> None:
        """What the starter says of it."""
        self.pid = answer.get("pid", self.pid)
        self.returncode = answer.get("code")
        if self._due is not None:
            self._send(self._due)

    def bereave(self) -> None:
        """Without the starter nobody knows how it ended; it stops by itself."""
        if self.returncode is None and (self.pid is None or not _lives(self.pid)):
            self.returncode = LOST

    def _send(self, number: int) -> None:
        """Now, or once it has been forked; to kill it before that, without the starter."""
        if self.poll() is not None:
            return
        if self.pid is None:
            self._due = number
            if number == signal.SIGKILL:
                self._starter.kill()
            return
        self._due = None
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL and os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)


def _lives(pid: int) -> bool:
    """Whether it works still; it may be nobody's to bury."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"
