"""The processes of a run on several devices of this machine, one per device.

Each one runs the job with the environment variables that torchrun sets, so torchrun can start them
instead. But torchrun does not detect that posenc's launcher has died, and it forwards signals too
late for the ranks to save a checkpoint. By default, the parent process therefore monitors the ranks
itself.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from posenc.jobs.exit_codes import BUSY, DISK_FULL, FAILED, FINISHED, INTERRUPTED, LOST, READ_ONLY
from posenc.runs.environment import thread_variables, torchrun_variables
from posenc.runs.lock import LOCK_TIMEOUT, lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import State, Status
from posenc.training.stop import StopRequest

POLL_SECONDS = 0.1
JOB_COMMAND = (sys.executable, "-P", "-m", "posenc.jobs.job")
"""The command of a job; with -P, Python does not import modules from the current directory."""
GRACE_SECONDS = 30.0
"""Seconds after which the other ranks are killed if one has ended with a nonzero exit code."""


def run_ranks(
    run: RunDirectory, modules: Sequence[str], devices: int, threads: int, stop: StopRequest
) -> int:
    """Start one process per device, wait for all of them, and return the run's exit code.

    Divides `threads` among the processes and forwards stop requests to them.
    """
    threads = max(1, threads // devices)
    command = [*JOB_COMMAND, str(run.path), "--threads", str(threads)]
    command += [f"--module={name}" for name in modules]
    with socket.socket() as bound_socket:  # stays bound, so that no other process gets the port
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_socket.bind(("127.0.0.1", 0))
        port = bound_socket.getsockname()[1]
        ranks = [_start_rank(command, rank, devices, port, threads) for rank in range(devices)]
        with stop.handling_signals():
            killed = _wait(ranks, stop)
    return _exit_code(run, ranks, killed)


def _start_rank(
    command: Sequence[str], rank: int, devices: int, port: int, threads: int
) -> subprocess.Popen[bytes]:
    variables = thread_variables(threads) | torchrun_variables(rank, devices, port)
    return subprocess.Popen(command, env=os.environ | variables)


def _wait(ranks: list[subprocess.Popen[bytes]], stop: StopRequest) -> set[int]:
    """Wait until all ranks have exited, and return the ranks that had to be killed.

    Once a rank has ended with a nonzero exit code, the others are killed if they do not exit within
    GRACE_SECONDS.
    """
    terminated, deadline, killed = False, float("inf"), set()
    while alive := {rank for rank, process in enumerate(ranks) if process.poll() is None}:
        if stop.requested() and not terminated:
            terminated = True
            for rank in alive:
                ranks[rank].terminate()
        if any(process.returncode for process in ranks):
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        if time.monotonic() > deadline:
            killed |= alive
            for rank in alive:
                ranks[rank].kill()
        time.sleep(POLL_SECONDS)
    return killed


def _exit_code(run: RunDirectory, ranks: list[subprocess.Popen[bytes]], killed: set[int]) -> int:
    """Return the run's exit code, and record a failure that rank 0 could not record itself."""
    codes = [LOST if rank in killed else process.returncode for rank, process in enumerate(ranks)]
    for rank, code in enumerate(codes):
        if code < 0:
            name = signal.Signals(-code).name
            _write_status(run, "interrupted", f"rank {rank} of {len(ranks)} was killed ({name})")
            return LOST
    for rank, code in enumerate(codes):
        if rank and code not in (FINISHED, BUSY, DISK_FULL, INTERRUPTED, LOST, READ_ONLY):
            _write_status(run, "failed", f"rank {rank} of {len(ranks)}: {run.last_log_line()}")
            return FAILED
    return LOST if LOST in codes and codes[0] != FAILED else codes[0]


def _write_status(run: RunDirectory, state: State, error: str) -> None:
    """Record how the run ended, unless another process has since taken over the run."""
    with lock(run.lock_file, timeout=LOCK_TIMEOUT) as acquired:
        if acquired:
            status = Status.read(run.status_file)
            status.replace(state=state, error=error, updated=time.time()).write(run.status_file)
