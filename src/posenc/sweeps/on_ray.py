"""Runs as tasks of a Ray cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status
from posenc.sweeps.lines import ending
from posenc.sweeps.progress import PlainView
from posenc.sweeps.schedulers import check_counts, needed
from posenc.sweeps.worker import Work


class RayCluster:
    """A task of `threads` cores for each run, with a GPU for each of its devices if `gpus`.

    `address` is the cluster's; None starts one on this machine. When this launcher ends, so do
    its tasks, and their runs checkpoint.
    """

    def __init__(
        self, *, address: str | None, threads: int, gpus: bool, console: Console | None = None
    ) -> None:
        check_counts(threads=threads)
        self.address, self.threads, self.gpus = address, threads, gpus
        self.view = PlainView(console or Console(stderr=True))

    def launch(self, jobs: Sequence[Sequence[str]], finished: int = 0) -> dict[str, Status]:
        """See every job to its end, as `Pool.launch` does."""
        ray = needed("ray")
        runs = [RunDirectory(Path(job[0])) for job in jobs]
        outcomes: dict[str, Status] = {}
        self.view.say(f"{len(jobs)} runs on Ray ({finished} finished before)")
        ray.init(self.address, include_dashboard=False, log_to_driver=False)
        try:
            tasks = [self._task(ray, job) for job in jobs]
            active = dict(zip(tasks, runs, strict=True))
            while active:
                (ended,), _ = ray.wait(list(active))
                run = active.pop(ended)
                outcomes[run.name] = status = run.status()
                self.view.say(f"■ {ending(run, status)}")
        finally:
            ray.shutdown()
        return outcomes

    def _task(self, ray: Any, job: Sequence[str]) -> Any:
        config = RunDirectory(Path(job[0])).config()
        on_gpus = self.gpus and config.trainer.accelerator != "cpu"
        wanted = {"num_cpus": self.threads, "num_gpus": config.devices if on_gpus else 0}
        return ray.remote(_run).options(max_retries=0, **wanted).remote(Work(job, self.threads))


def _run(work: Work) -> None:
    work()
