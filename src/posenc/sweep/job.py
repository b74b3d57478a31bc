"""One run in a process of its own: `python -m posenc.sweep.job RUN_DIR --threads N`.

Exit codes: 0 finished, 1 failed, 3 another process has it, 143 interrupted.
"""

import argparse
import logging
import os
import sys
from pathlib import Path

from posenc.record.lock import INSTANT, lock
from posenc.record.rundir import RunDirectory
from posenc.sweep.process import BUSY
from posenc.training.stop import Stop


def main(argv: list[str] | None = None) -> int:
    stop = Stop(os.getppid())
    parser = argparse.ArgumentParser(prog="python -m posenc.sweep.job", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--module", action="append", default=[], help="trusted outside posenc")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    run = RunDirectory(arguments.run)
    with lock(run.lock_file, wait=False, patience=INSTANT) as obtained:
        if not obtained:
            print(f"{run.name} is being run by another process")
            return BUSY
        # The launcher may die during these seconds of imports; `stop` watches already.
        from posenc.sweep.execute import execute

        return execute(run, arguments.threads, arguments.module, stop)


if __name__ == "__main__":
    sys.exit(main())
