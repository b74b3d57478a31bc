"""The launcher `pool`, where Hydra looks for it."""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from posenc.sweep.pool import Pool


class PoolLauncher(Launcher):
    """Processes on this machine, `jobs` at a time (null: one for each GPU, or for each core).

    Of Hydra's protocol it keeps the form: a "job override" list is the arguments of a job's
    process, the run directory first, for each job is started from its directory alone.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self._pool = Pool(self._jobs)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """A return value is the Status a run ended with; COMPLETED says only that it ended.

        `initial_job_idx` is the number of runs of the sweep that are finished already.
        """
        outcomes = self._pool.launch(job_overrides, finished=initial_job_idx)
        return [
            JobReturn(
                overrides=job,
                working_dir=job[0],
                status=JobStatus.COMPLETED,
                _return_value=outcomes[Path(job[0]).name],
            )
            for job in job_overrides
        ]
