"""One run in a process of its own: `python -m posenc.sweep.job RUN_DIR --threads N`.

Exit codes: 0 finished, 1 failed, 3 another process has it, 4 the disk is full, 143 interrupted.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from posenc.record.lock import INSTANT, lock
from posenc.record.rundir import RunDirectory
from posenc.sweep.process import BUSY, INTERRUPTED
from posenc.training.stop import Stop


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m posenc.sweep.job", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--launcher", type=int, default=os.getppid(), help="its process id")
    parser.add_argument("--module", action="append", default=[], help="trusted outside posenc")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    run, stop = RunDirectory(arguments.run), Stop(arguments.launcher)
    with lock(run.lock_file, wait=False, patience=INSTANT) as obtained:
        if not obtained:
            print(f"{run.name} is being run by another process")
            return BUSY
        if stop.asked():
            return INTERRUPTED
        # The launcher may die during these seconds of imports; `stop` watches already.
        from posenc.sweep.execute import execute

        return execute(run, arguments.threads, arguments.module, stop)


if __name__ == "__main__":
    sys.exit(main())
