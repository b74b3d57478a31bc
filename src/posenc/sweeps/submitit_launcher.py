"""Launchers that use submitit to run jobs on Slurm or, without a cluster, on this machine."""

import shutil
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from posenc.config.console import Console
from posenc.config.errors import ConfigError, RunError, import_extra, one_line, plural
from posenc.runs.environment import SAFE_PATH, changed_environment
from posenc.runs.status import Status
from posenc.sweeps.launcher import Launcher, PlannedRun, check_positive, ended_status
from posenc.sweeps.progress import status_line
from posenc.sweeps.worker import Worker

if TYPE_CHECKING:
    from submitit import Job

POLL_SECONDS = 1.0
MAX_REQUEUES = 1000
"""The maximum number of times that submitit requeues a job that reaches its time limit.

submitit's local executor starts a job at most 6 times, regardless of this number.
"""


class SubmititLauncher(Launcher):
    """Submits every run as a job with `cpus_per_task` cores and waits for all of them.

    At most `jobs` jobs are in the queue at a time; None sets no limit. A job that is preempted, or
    that reaches its limit of `timeout_min` minutes, saves a checkpoint, is requeued and resumes.
    Jobs on a cluster continue if this launcher exits.
    """

    cluster: str
    local: bool

    def __init__(
        self,
        jobs: int | None,
        cpus_per_task: int,
        timeout_min: int,
    ) -> None:
        check_positive(jobs=jobs, cpus_per_task=cpus_per_task, timeout_min=timeout_min)
        self.jobs, self.cpus_per_task, self.timeout_min = jobs, cpus_per_task, timeout_min
        self.console = Console(stderr=True)

    def check_available(self) -> None:
        import_extra("submitit", "this launcher")

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job; see `Launcher.launch`. After Ctrl-C, jobs on a cluster continue.

        Raises RunError if the cluster rejects a job; those already submitted continue.
        """
        waiting = deque(runs)
        submitted = {planned: planned.run.status() for planned in runs}
        active: dict[PlannedRun, Job[None]] = {}
        outcomes: dict[str, Status] = {}
        count = plural(len(runs), "run")
        self.print_line(f"submitting {count} ({self.cluster}), {finished} already finished")
        folder = runs[0].run.path.absolute().parent
        code, jobs_folder = self.snapshot_code(folder), _new_jobs_folder(folder)
        try:
            while waiting or active:
                while waiting and len(active) < (self.jobs or len(runs)):
                    planned = waiting.popleft()
                    active[planned] = job = self._submit(planned, code, jobs_folder)
                    self.print_line(f"▶ {planned.name}  submitted as job {job.job_id}")
                time.sleep(POLL_SECONDS)
                for planned in self._ended(active):
                    job = active.pop(planned)
                    outcomes[planned.name] = status = ended_status(
                        planned, submitted[planned], f"see {job.paths.stderr}"
                    )
                    self.print_line(f"■ {status_line(planned.run, status)}")
        except KeyboardInterrupt:
            ids = " ".join(job.job_id for job in active.values())
            if ids and not self.local:  # Ctrl-C also reaches local jobs
                self.print_line(
                    f"jobs {ids} continue without this command; posenc status shows their progress"
                )
            if waiting:
                runs_left = plural(len(waiting), "run")
                self.print_line(f"not submitted: {runs_left}; rerun this command to submit them")
            raise
        return outcomes

    def _submit(self, planned: PlannedRun, code: Path, folder: Path) -> "Job[None]":
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        requeues = {f"{self.cluster}_max_num_timeout": MAX_REQUEUES}
        executor = submitit.AutoExecutor(folder, cluster=self.cluster, **requeues)
        parameters = self._parameters(planned)
        executor.update_parameters(name=planned.name, timeout_min=self.timeout_min, **parameters)
        with changed_environment(SAFE_PATH):  # the job's process inherits it
            try:
                return executor.submit(Worker(planned, self.cpus_per_task, code))
            except (FailedJobError, FailedSubmissionError) as error:
                raise RunError(
                    f"the cluster rejected the job of {planned.name}: {one_line(str(error))}; jobs"
                    f" that it has accepted continue. Change hydra.launcher.gpus,"
                    f" hydra.launcher.additional_parameters or, if too many jobs are in the queue,"
                    f" hydra.launcher.jobs, and rerun this command"
                ) from None

    def _parameters(self, planned: PlannedRun) -> dict[str, Any]:
        """Return additional parameters for submitit's executor."""
        return {}

    def _ended(self, active: Mapping[PlannedRun, "Job[None]"]) -> list[PlannedRun]:
        """Return the runs whose jobs have ended."""
        return [planned for planned, job in active.items() if job.done()]


def _new_jobs_folder(folder: Path) -> Path:
    """Create and return a new folder for the files of the jobs, which submitit unpickles.

    In an existing folder, a job could unpickle a file that somebody else has put there.
    """
    parent = folder / ".submitit"
    parent.mkdir(exist_ok=True)
    new = Path(mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent))
    new.chmod(parent.stat().st_mode)  # the logs of jobs are as readable as those of runs
    return new


class LocalLauncher(SubmititLauncher):
    """Runs jobs as processes on this machine, using the same code path as on Slurm."""

    cluster, local = "local", True


class SlurmLauncher(SubmititLauncher):
    """Runs jobs on a Slurm cluster; `gpus` requests one GPU per device of a run.

    `additional_parameters` maps the long names of sbatch options to their values.
    """

    cluster, local = "slurm", False

    def __init__(
        self,
        jobs: int | None,
        cpus_per_task: int,
        timeout_min: int,
        gpus: bool,
        additional_parameters: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(jobs, cpus_per_task, timeout_min)
        self.gpus, self.additional_parameters = gpus, dict(additional_parameters or {})

    def check_available(self) -> None:
        super().check_available()
        if missing := [name for name in ("srun", "sbatch", "squeue") if not shutil.which(name)]:
            raise ConfigError(
                f"hydra/launcher=submitit_slurm needs Slurm, but this machine has no"
                f" {', '.join(missing)}; run the command on a machine from which you can submit"
                f" jobs, or use hydra/launcher=pool"
            )

    def _parameters(self, planned: PlannedRun) -> dict[str, Any]:
        on_gpus = self.gpus and planned.accelerator != "cpu"
        additional = {k: v for k, v in self.additional_parameters.items() if v is not None}
        return {
            "cpus_per_task": self.cpus_per_task,
            "slurm_gpus_per_node": planned.devices if on_gpus else None,
            "slurm_additional_parameters": {"requeue": True, **additional},
        }

    def _ended(self, active: Mapping[PlannedRun, "Job[None]"]) -> list[PlannedRun]:
        # submitit's job.done() calls sacct, which fails on clusters without accounting.
        listing = subprocess.run(
            ["squeue", "--me", "--noheader", "--format=%A"], capture_output=True, text=True
        )
        if listing.returncode:  # the controller is busy or restarting; retried at the next poll
            return []
        queued = set(listing.stdout.split())
        return [planned for planned, job in active.items() if job.job_id not in queued]
