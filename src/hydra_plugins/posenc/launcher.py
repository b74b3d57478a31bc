"""Launchers, where Hydra looks for them: the default, `pool`, and what they have in common."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from posenc.runs.status import Status
from posenc.sweeps.pool import Pool


class Runs(Protocol):
    """What sees runs to their end."""

    def launch(self, jobs: Sequence[Sequence[str]], finished: int = 0) -> dict[str, Status]: ...


class RunsLauncher(Launcher):
    """Hands the jobs to what `_made` makes.

    Of Hydra's protocol it keeps the form: a "job override" list is the arguments of a job's
    process, the run directory first, for each job is started from its directory alone. `here`
    says that runs have the devices of this machine.
    """

    here = True

    @abstractmethod
    def _made(self) -> Runs: ...

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._runs = self._made()

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """A return value is the Status a run ended with; COMPLETED says only that it ended.

        `initial_job_idx` is the number of runs of the sweep that are finished already.
        """
        outcomes = self._runs.launch(job_overrides, finished=initial_job_idx)
        return [
            JobReturn(
                overrides=job,
                working_dir=job[0],
                status=JobStatus.COMPLETED,
                _return_value=outcomes[Path(job[0]).name],
            )
            for job in job_overrides
        ]


class PoolLauncher(RunsLauncher):
    """Processes on this machine, `jobs` at a time (null: one for each GPU, or for each core)."""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs

    def _made(self) -> Pool:
        return Pool(self._jobs)
