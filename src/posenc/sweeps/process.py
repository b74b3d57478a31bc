"""One run's process, as its launcher sees it."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from posenc.runs.environment import environment
from posenc.runs.files import DISK_FULL
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.exits import ASKED, BUSY, FINISHED, FULL, INTERRUPTED, LOST
from posenc.sweeps.forks import Fork, Starter


class JobProcess:
    """`command RUN_DIR --threads N ...`, its output appended to `run.log`.

    It leads a session of its own, so that a terminal's Ctrl-C reaches the launcher alone. It has
    one GPU, or sees those that the launcher sees, and may import from `code` and, after that, from
    the current folder. With a `starter` it is a fork of that, in place of the command.
    """

    def __init__(
        self,
        command: Sequence[str],
        run: RunDirectory,
        arguments: Sequence[str],
        *,
        threads: int,
        gpu: str | None,
        code: Path | None = None,
        starter: Starter | None = None,
    ) -> None:
        self.run = run
        self.job = [str(run.path), *arguments]
        self._started = time.monotonic()
        self._before = Status.read(run.status_file)
        self.threads: int = self._before.resolved.get("threads", threads)
        starter = None if starter is None or starter.gone else starter
        parent = os.getpid() if starter is None else starter.pid
        own = [str(run.path), "--threads", str(self.threads), "--launcher", str(parent), *arguments]
        around = environment(self.threads, code)
        around |= {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self._process: subprocess.Popen[bytes] | Fork
        with run.log_file.open("ab") as log:
            if starter is not None:
                self._process = starter.fork(own, run.log_file, around)
                return
            self._process = subprocess.Popen(
                [*command, *own],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=around,
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def terminate(self) -> None:
        """Ask it to write a checkpoint and end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it and whatever it started, now."""
        if isinstance(self._process, Fork):
            self._process.kill()
        elif not self.ended():
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self) -> None:
        self._process.wait()

    def status(self) -> Status:
        """What it has written; pending until it has written something."""
        status = Status.read(self.run.status_file)
        return self._before.but(state="pending") if status == self._before else status

    def outcome(self) -> Status:
        """How it ended. One that gave up without a word is recorded as failed, in the run too."""
        code = self._process.wait()
        status = self.run.status()
        if code == BUSY or (status != self._before and status.state in ("finished", "failed")):
            return status
        if code < 0:
            error = f"its process was killed ({signal.Signals(-code).name})"
            return status.but(state="interrupted", error=error)
        if code == LOST and status.state != "interrupted":
            return status.but(
                state="interrupted", error="the process that it was forked from is gone"
            )
        if code == FULL:
            return status.but(state="interrupted", error=DISK_FULL)
        if code not in (FINISHED, LOST, INTERRUPTED):
            error = f"its process ended with exit code {code}: {last_line(self.run.log_file)}"
            status = status.but(state="failed", error=error, updated=time.time())
            with suppress(OSError):  # where even this has no room, the launcher still says it
                status.write(self.run.status_file)
        return status

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._started

    @property
    def killed(self) -> bool:
        """Whether it, or one of its group, ended by a signal that asks for nothing: SIGKILL,
        SIGSEGV and their like."""
        code = self._process.returncode
        return code == LOST or (code is not None and code < 0 and -code not in ASKED)

    @property
    def busy(self) -> bool:
        """Whether it ended because another process has the run."""
        return self._process.returncode == BUSY


def last_line(file: Path) -> str:
    """What the log says last."""
    lines = file.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
