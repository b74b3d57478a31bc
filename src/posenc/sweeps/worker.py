"""The callable that runs a job on a cluster node; submitit and Ray pickle it."""

import time
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.config.errors import RunError
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.job_process import JobProcess, recorded_signals
from posenc.sweeps.launcher import PlannedRun

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

POLL_SECONDS = 0.2


class Worker:
    """Runs one job, with posenc imported from `code`, when called.

    Raises RunError if the run does not finish.

    If a scheduler calls it again, the run resumes from its last checkpoint.
    """

    def __init__(self, planned: PlannedRun, threads: int, code: Path) -> None:
        run = RunDirectory(planned.run.path.absolute())
        self.planned = replace(planned, run=run)
        self.threads, self.code = threads, code

    def __call__(self) -> None:
        with recorded_signals() as received:
            self._process = JobProcess(self.planned, threads=self.threads, code=self.code)
            handled = 0
            while not self._process.ended:
                if len(received) > handled:
                    handled = len(received)
                    self._process.terminate()
                time.sleep(POLL_SECONDS)
        status = self._process.outcome()
        if status.state != "finished":
            raise RunError(f"{self.planned.name} is {status.state}: {status.error}")

    def checkpoint(self) -> "DelayedSubmission":
        """Stop the job and return what submitit requeues; called on preemption or timeout."""
        from submitit.helpers import DelayedSubmission

        self._process.terminate()
        while not self._process.ended:
            time.sleep(POLL_SECONDS)
        requeued = copy(self)
        del requeued._process
        return DelayedSubmission(requeued)
