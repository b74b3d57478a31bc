"""The process that executes one run: `python -m posenc.jobs.job RUN_DIR --threads N`.

A run on several devices needs one process per device. This process starts and monitors them, unless
torchrun's environment variables show that it is itself a rank. Exit codes are in `exit_codes`.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from posenc.config.errors import RunError
from posenc.jobs.exit_codes import BUSY, INTERRUPTED
from posenc.jobs.rank_processes import run_ranks
from posenc.runs.environment import in_process_group, job_process, rank
from posenc.runs.lock import LOCK_TIMEOUT, describe_holder, lock
from posenc.runs.run_directory import RunDirectory
from posenc.training.stop import StopRequest


@job_process()
def main(
    argv: Sequence[str] | None = None, launcher_alive: Callable[[], bool] | None = None
) -> int:
    """Run a job and return its exit code.

    The job saves a checkpoint and stops when `launcher_alive` returns False. The default checks
    that the id of the parent process is still `--launcher`.
    """
    parser = argparse.ArgumentParser(prog="python -m posenc.jobs.job", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--launcher", type=int, default=os.getppid(), help="the launcher's process id"
    )
    parser.add_argument(
        "--module", action="append", default=[], help="a trusted module outside posenc"
    )
    arguments = parser.parse_args(argv)
    level = logging.INFO if rank() == 0 else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    run = RunDirectory(arguments.run)
    stop = StopRequest(launcher_alive or (lambda: os.getppid() == arguments.launcher))
    if not in_process_group() and (devices := _num_devices(run)) > 1:
        return run_ranks(run, arguments.module, devices, arguments.threads, stop)
    # Only rank 0 of a process group writes to the run directory, so only rank 0 locks it.
    run_lock = lock(run.lock_file, timeout=LOCK_TIMEOUT) if rank() == 0 else nullcontext(True)
    with run_lock as acquired:
        if not acquired:
            print(f"{run.name} is being run by {describe_holder(run.lock_file)}")
            return BUSY
        if stop.requested():
            return INTERRUPTED
        # Imported here because importing torch takes seconds, and the cases above do not need it.
        from posenc.jobs.run_job import run_job

        return run_job(run, arguments.threads, arguments.module, stop)


def _num_devices(run: RunDirectory) -> int:
    """Return the number of devices of a planned run, or 1 if its configuration is invalid."""
    try:
        return run.config().get("devices", 1)
    except RunError:  # the job will report it
        return 1


if __name__ == "__main__":
    with job_process():
        exit_code = main()
        if in_process_group():
            # PyTorch's communication threads sometimes abort a process while Python shuts down
            # (pytorch/pytorch#190489), and the finished run would count as interrupted.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(exit_code)
        sys.exit(exit_code)
