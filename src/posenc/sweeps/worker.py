"""A run's process on the machine that a scheduler has chosen for it."""

import time
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from posenc.config.errors import RunError
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.forks import JOB
from posenc.sweeps.freeze import frozen
from posenc.sweeps.interrupts import interruptions
from posenc.sweeps.process import JobProcess

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

POLL_SECONDS = 0.2


class Work:
    """Called on that machine, it sees one job to its end; RunError unless the run is finished.

    `job` is the arguments of its process, the run directory first. submitit and Ray pickle this,
    and call it again as it is when they start a job a second time: the run's own directory says
    where to go on.
    """

    def __init__(self, job: Sequence[str], threads: int) -> None:
        self.job, self.threads = [str(Path(job[0]).absolute()), *job[1:]], threads
        self.code = frozen(Path(self.job[0]).parent)

    def __call__(self) -> None:
        run = RunDirectory(Path(self.job[0]))
        with interruptions() as asked:
            self._process = JobProcess(
                JOB, run, self.job[1:], threads=self.threads, gpu=None, code=self.code
            )
            heeded = 0
            while not self._process.ended():
                if len(asked) > heeded:
                    heeded = len(asked)
                    self._process.terminate()
                time.sleep(POLL_SECONDS)
        status = self._process.outcome()
        if status.state != "finished":
            raise RunError(f"{run.name} is {status.state}: {status.error}")

    def checkpoint(self) -> "DelayedSubmission":
        """What submitit is to queue again, which it asks shortly before the job's time is up."""
        from submitit.helpers import DelayedSubmission

        self._process.terminate()
        while not self._process.ended():
            time.sleep(POLL_SECONDS)
        again = copy(self)
        del again._process
        return DelayedSubmission(again)
