"""Runs as jobs of a queue, handed to it with submitit: Slurm's, or one that stands in for it."""

import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.lines import ending
from posenc.sweeps.progress import PlainView
from posenc.sweeps.schedulers import check_counts, needed
from posenc.sweeps.worker import Work

if TYPE_CHECKING:
    from submitit import Job

POLL_SECONDS = 1.0
REQUEUES = 1000
"""How often submitit queues a job again whose time was up."""


class Queue:
    """Submits every run as a job with `threads` cores and waits for all of them.

    `jobs` limits those in the queue at a time. A job that a cluster preempts, or whose time of
    `minutes` is up, checkpoints, is queued again and goes on. The jobs are the cluster's: they go
    on without this launcher.
    """

    def __init__(
        self,
        cluster: str,
        *,
        jobs: int | None,
        threads: int,
        minutes: int,
        gpus: bool = False,
        options: Mapping[str, Any] | None = None,
        console: Console | None = None,
    ) -> None:
        check_counts(threads=threads, minutes=minutes)
        if jobs is not None:
            check_counts(jobs=jobs)
        self.cluster, self.jobs, self.threads = cluster, jobs, threads
        self.minutes, self.gpus, self.options = minutes, gpus, dict(options or {})
        self.view = PlainView(console or Console(stderr=True))

    def launch(self, jobs: Sequence[Sequence[str]], finished: int = 0) -> dict[str, Status]:
        """See every job to its end, as `Pool.launch` does; Ctrl-C ends the waiting alone."""
        waiting, active = deque(jobs), {}
        outcomes: dict[str, Status] = {}
        self.view.say(f"{len(jobs)} runs for {self.cluster} ({finished} finished before)")
        try:
            while waiting or active:
                while waiting and len(active) < (self.jobs or len(jobs)):
                    run, job = self._submit(waiting.popleft())
                    active[run] = job
                    self.view.say(f"▶ {run.name}  submitted as job {job.job_id}")
                time.sleep(POLL_SECONDS)
                for run in self._ended(active):
                    del active[run]
                    outcomes[run.name] = status = run.status()
                    self.view.say(f"■ {ending(run, status)}")
        except KeyboardInterrupt:
            left = " ".join(job.job_id for job in active.values())
            self.view.say(f"not waiting any longer; jobs {left} go on, posenc status shows them")
            raise
        return outcomes

    def _submit(self, job: Sequence[str]) -> tuple[RunDirectory, "Job[None]"]:
        run = RunDirectory(Path(job[0]))
        again = {f"{self.cluster}_max_num_timeout": REQUEUES}
        folder = run.path.absolute().parent / ".submitit"
        executor = needed("submitit").AutoExecutor(folder, cluster=self.cluster, **again)
        executor.update_parameters(name=run.name, timeout_min=self.minutes)
        if self.cluster == "slurm":
            config = run.config()
            on_gpus = self.gpus and config.trainer.accelerator != "cpu"
            given = {name: value for name, value in self.options.items() if value is not None}
            executor.update_parameters(
                cpus_per_task=self.threads,
                slurm_gpus_per_node=config.devices if on_gpus else None,
                slurm_additional_parameters={"requeue": True, **given},
            )
        return run, executor.submit(Work(job, self.threads))

    def _ended(self, active: Mapping[RunDirectory, "Job[None]"]) -> list[RunDirectory]:
        """Those whose jobs have left the queue; Slurm's own list of it needs no accounting."""
        if self.cluster == "local":
            return [run for run, job in active.items() if job.done()]
        listed = subprocess.run(
            ["squeue", "--me", "--noheader", "--format=%A"], capture_output=True, text=True
        )
        there = set(listed.stdout.split())
        if listed.returncode:  # its controller is busy or restarts; the next time will tell
            return []
        return [run for run, job in active.items() if job.job_id not in there]
