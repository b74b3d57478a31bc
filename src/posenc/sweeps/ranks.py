"""The processes of a run on several devices of this machine, and what becomes of them together.

Each is the run's job with torchrun's environment, so that a cluster's own torchrun, or srun, can
start them instead. One that dies takes the others along: what it had not done, they wait for.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from posenc.config.errors import RunError
from posenc.runs.environment import threads_of
from posenc.runs.lock import INSTANT, lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import State, Status
from posenc.sweeps.exits import BUSY, FAILED, FINISHED, FULL, INTERRUPTED, LOST
from posenc.sweeps.process import last_line
from posenc.training.stop import StopRequest

POLL_SECONDS = 0.1
GRACE_SECONDS = 30.0
"""For the others to end by themselves, once one has ended otherwise than finished."""


def devices_of(run: RunDirectory) -> int:
    """How many devices a planned run is to have."""
    try:
        return run.config().get("devices", 1)
    except RunError:  # which executing the run will say
        return 1


def run_ranks(
    run: RunDirectory, modules: Sequence[str], devices: int, threads: int, stop: StopRequest
) -> int:
    """Start a process for each device, which share the threads, and see them to their end; the
    exit code of the run. SIGTERM, and the death of the launcher, are passed on."""
    threads = max(1, threads // devices)
    command = [sys.executable, "-m", "posenc.sweeps.job", str(run.path), "--threads", str(threads)]
    command += [word for name in modules for word in ("--module", name)]
    with _port() as port:
        ranks = [_start(command, rank, devices, port, threads) for rank in range(devices)]
        with stop.handling_signals():
            late = _see_to_the_end(ranks, stop)
    return _concluded(run, ranks, late)


def _start(
    command: Sequence[str], rank: int, devices: int, port: int, threads: int
) -> subprocess.Popen[bytes]:
    group = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": devices,
        "LOCAL_WORLD_SIZE": devices,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    told = {name: str(value) for name, value in group.items()}
    return subprocess.Popen(command, env=os.environ | threads_of(threads) | told)


@contextmanager
def _port() -> Iterator[int]:
    """A free port, which stays bound, though nobody listens, so that no other is given it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def _see_to_the_end(ranks: list[subprocess.Popen[bytes]], stop: StopRequest) -> set[int]:
    """Wait for all; where one ends badly, for the others as long as is decent: those killed."""
    told, until, late = False, float("inf"), set()
    while living := {rank for rank, process in enumerate(ranks) if process.poll() is None}:
        if stop.requested() and not told:
            told = True
            for rank in living:
                ranks[rank].terminate()
        if any(process.returncode for process in ranks):
            until = min(until, time.monotonic() + GRACE_SECONDS)
        if time.monotonic() > until:
            late |= living
            for rank in living:
                ranks[rank].kill()
        time.sleep(POLL_SECONDS)
    return late


def _concluded(run: RunDirectory, ranks: list[subprocess.Popen[bytes]], late: set[int]) -> int:
    """The run's exit code, of what each came to; what process 0 could not write is written here."""
    codes = [LOST if rank in late else process.returncode for rank, process in enumerate(ranks)]
    for rank, code in enumerate(codes):
        if code < 0:
            signalled = signal.Signals(-code).name
            _settle(run, "interrupted", f"rank {rank} of {len(ranks)} was killed ({signalled})")
            return LOST
    for rank, code in enumerate(codes):
        if rank and code not in (FINISHED, BUSY, FULL, INTERRUPTED, LOST):
            _settle(run, "failed", f"rank {rank} of {len(ranks)}: {last_line(run.log_file)}")
            return FAILED
    return LOST if LOST in codes else codes[0]


def _settle(run: RunDirectory, state: State, error: str) -> None:
    """Write how the run ended, unless another process has it by now."""
    with lock(run.lock_file, wait=False, patience=INSTANT) as obtained:
        if obtained:
            status = Status.read(run.status_file)
            status.but(state=state, error=error, updated=time.time()).write(run.status_file)
