"""Jobs forked from multiprocessing's fork server, which imports PyTorch and Lightning only once."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver, parent_process, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

from posenc.jobs.exit_codes import STOP_SIGNALS
from posenc.runs.environment import MALLOC_VARIABLES
from posenc.runs.files import open_to_append

PRELOADED = ["torch", "pytorch_lightning", "hydra", "typeguard", "scipy.special"]
"""Libraries that every job imports; posenc is not preloaded, because jobs import a frozen copy."""


def start_job(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], code: Path | None
) -> ForkServerProcess:
    """Start a job that imports posenc from `code` and appends its output to `log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    _ensure_running()
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
    with open(os.devnull, "rb") as null, open_to_append(Path(log)) as output:
        for file, descriptor in ((null, 0), (output, 1), (output, 2)):
            os.dup2(file.fileno(), descriptor)
    from posenc.jobs.job import main

    launcher = parent_process()
    assert launcher is not None
    sys.exit(main(arguments, launcher.is_alive))


def _ensure_running() -> None:
    """Start the server if necessary, with MALLOC_VARIABLES set and stop signals blocked.

    A signal to the launcher's process group must not kill the server, which reports the exit codes
    of jobs.
    """
    resource_tracker.ensure_running()  # done first, because it changes the signal mask
    old_environment = dict(os.environ)
    os.environ.update(MALLOC_VARIABLES)
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        os.environ.clear()
        os.environ.update(old_environment)
