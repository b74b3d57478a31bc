"""One run in a process of its own: `python -m posenc.sweeps.job RUN_DIR --threads N`.

A run on several devices takes a process for each, which this one starts and watches, unless
torchrun's environment says that this is one of them.
Exit codes: 0 finished, 1 failed, 3 another process has it, 4 the disk is full, 5 a process of its
group is gone, 143 interrupted.
"""

import argparse
import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from posenc.runs.environment import grouped, rank
from posenc.runs.lock import INSTANT, lock
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.exits import BUSY, INTERRUPTED
from posenc.sweeps.ranks import devices_of, run_ranks
from posenc.training.stop import StopRequest


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m posenc.sweeps.job", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--launcher", type=int, default=os.getppid(), help="its process id")
    parser.add_argument("--module", action="append", default=[], help="trusted outside posenc")
    arguments = parser.parse_args(argv)
    level = logging.INFO if rank() == 0 else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    run, stop = RunDirectory(arguments.run), StopRequest(arguments.launcher)
    if not grouped() and (devices := devices_of(run)) > 1:
        return run_ranks(run, arguments.module, devices, arguments.threads, stop)
    # Of a group, the first process alone writes; the others end where it may not.
    writing = (
        lock(run.lock_file, wait=False, patience=INSTANT) if rank() == 0 else nullcontext(True)
    )
    with writing as obtained:
        if not obtained:
            print(f"{run.name} is being run by another process")
            return BUSY
        if stop.requested():
            return INTERRUPTED
        # The launcher may die during these seconds of imports; `stop` watches already.
        from posenc.sweeps.execute import execute

        return execute(run, arguments.threads, arguments.module, stop)


if __name__ == "__main__":
    sys.exit(main())
