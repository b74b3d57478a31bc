"""The process of one run, as seen by its launcher, and the launcher's signal handling.

On Linux without GPUs, the default launcher forks processes from multiprocessing's fork server,
which imports PyTorch and Lightning once. All other processes are new Python interpreters.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, parent_process, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

from posenc.jobs.exit_codes import (
    BUSY,
    DISK_FULL,
    FINISHED,
    INTERRUPTED,
    LOST,
    READ_ONLY,
    STOP_SIGNALS,
)
from posenc.jobs.rank_processes import JOB_COMMAND
from posenc.runs.environment import (
    LIGHTNING_RANK_VARIABLES,
    MALLOC_VARIABLES,
    SAFE_PATH,
    changed_environment,
    job_environment,
)
from posenc.runs.files import DISK_FULL_MESSAGE, READ_ONLY_MESSAGE, open_for_append
from posenc.runs.status import Status
from posenc.sweeps.launcher import PlannedRun

DISK_MESSAGES = {DISK_FULL: DISK_FULL_MESSAGE, READ_ONLY: READ_ONLY_MESSAGE}
FORK_SERVER_LOST = 255
"""The exit code that multiprocessing reports for a process whose fork server has died."""
SAME_SIGNAL_SECONDS = 0.5
"""Signals closer together than this count as one: some tools signal a process and its group."""
PRELOADED = ["torch", "pytorch_lightning", "hydra", "typeguard", "scipy.special"]
"""Libraries that every job imports; posenc is not preloaded, because jobs import a frozen copy."""


class JobProcess:
    """Runs `command RUN_DIR --threads N ...` and appends its output to `run.log`.

    The process leads its own session, so that Ctrl-C in a terminal reaches only the launcher. It
    inherits CUDA_VISIBLE_DEVICES unless `gpus` is set. With `fork`, it is forked from the fork
    server instead of started as a new interpreter.
    """

    def __init__(
        self,
        planned: PlannedRun,
        *,
        threads: int,
        gpus: str | None = None,
        code: Path | None = None,
        command: Sequence[str] = JOB_COMMAND,
        fork: bool = False,
    ) -> None:
        self.planned, self.run = planned, planned.run
        self._started = time.monotonic()
        self._old_status = Status.read(self.run.status_file)
        self.threads: int = self._old_status.resolved.get("threads", threads)
        arguments = [*planned.job_arguments, "--threads", str(self.threads)]
        variables = job_environment(self.threads, code)
        variables |= {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        self._process: subprocess.Popen[bytes] | ForkServerProcess
        with open_for_append(self.run.log_file) as log:
            if fork:
                self._process = start_job(arguments, self.run.log_file, variables, code)
                return
            self._process = subprocess.Popen(
                [*command, *arguments, "--launcher", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll()
        return self._process.exitcode

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the process was started."""
        return time.monotonic() - self._started

    @property
    def ended(self) -> bool:
        return self.exit_code is not None

    @property
    def killed(self) -> bool:
        """Whether a signal such as SIGKILL killed the process, a rank or the fork server."""
        code = self.exit_code
        lost = code in (LOST, FORK_SERVER_LOST)
        return lost or (code is not None and code < 0 and -code not in STOP_SIGNALS)

    def terminate(self) -> None:
        """Tell the job to save a checkpoint and exit."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the job and every process that it started."""
        pid = self._process.pid
        if self.ended or pid is None:
            return
        with suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:  # just forked, and still in the launcher's process group
                os.kill(pid, signal.SIGKILL)

    def wait(self) -> None:
        if isinstance(self._process, subprocess.Popen):
            self._process.wait()
        else:
            self._process.join()

    def status(self) -> Status:
        """Return the status that this job has written, or a pending status if there is none yet."""
        status = Status.read(self.run.status_file)
        return self._old_status.replace(state="pending") if status == self._old_status else status

    def outcome(self) -> Status:
        """Wait for the job and return its final status, recorded or derived from its exit code."""
        self.wait()
        code, status = self.exit_code, self.run.status()
        assert code is not None
        if code == BUSY or (status != self._old_status and status.has_ended):
            return status
        if code < 0:
            error = f"its process was killed ({signal.Signals(-code).name})"
            return status.replace(state="interrupted", error=error)
        if code in (LOST, FORK_SERVER_LOST) and status.state != "interrupted":
            error = "its fork server or one of its ranks died"
            return status.replace(state="interrupted", error=error)
        if code in DISK_MESSAGES:
            return status.replace(state="interrupted", error=DISK_MESSAGES[code])
        if code not in (FINISHED, LOST, FORK_SERVER_LOST, INTERRUPTED):
            error = f"its process exited with code {code}: {self.run.last_log_line()}"
            status = status.replace(state="failed", error=error, updated=time.time())
            with suppress(OSError):  # the launcher reports the failure even if the disk is full
                status.write(self.run.status_file)
        return status


@contextmanager
def recorded_signals() -> Iterator[Sequence[float]]:
    """Yield a list to which the arrival time of every SIGINT, SIGTERM and SIGHUP is appended.

    Signals less than SAME_SIGNAL_SECONDS apart count as one. The signals have no other effect.
    Signals that were already ignored, as under nohup, stay ignored.
    """
    received: list[float] = []

    def receive(number: int, frame: object) -> None:
        if not received or time.monotonic() - received[-1] > SAME_SIGNAL_SECONDS:
            received.append(time.monotonic())

    old_handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handled = [number for number in STOP_SIGNALS if old_handlers[number] is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number in handled:
            signal.signal(number, old_handlers[number])


def start_job(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], code: Path | None
) -> ForkServerProcess:
    """Start a job that imports posenc from `code` and appends its output to `log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    _ensure_fork_server()
    process = context.Process(target=run_job_process, args=(arguments, str(log), environment))
    old_path, main_module = list(sys.path), sys.modules["__main__"]
    sys.path[:0] = [str(code)] if code else []  # multiprocessing copies sys.path to the process
    # With the real main module, the process would rerun a script that calls posenc.train.
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.path[:], sys.modules["__main__"] = old_path, main_module
    return process


def run_job_process(arguments: Sequence[str], log: str, environment: Mapping[str, str]) -> None:
    """Run a job in this process, as if it had been started with this log and environment."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.environ.clear()
    os.environ.update(environment)
    with open(os.devnull, "rb") as null, open_for_append(Path(log)) as output:
        for file, descriptor in ((null, 0), (output, 1), (output, 2)):
            os.dup2(file.fileno(), descriptor)
    from posenc.jobs.job import main

    launcher = parent_process()
    assert launcher is not None
    sys.exit(main(arguments, launcher.is_alive))


def _ensure_fork_server() -> None:
    """Start the fork server if necessary, with its own environment and stop signals blocked.

    Its environment has MALLOC_VARIABLES but no rank variables, and it imports nothing from the
    current directory. A signal to the launcher's process group must not kill the server, which
    reports the exit codes of jobs.
    """
    with changed_environment({**MALLOC_VARIABLES, **SAFE_PATH}, LIGHTNING_RANK_VARIABLES):
        resource_tracker.ensure_running()  # done first, because it changes the signal mask
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
