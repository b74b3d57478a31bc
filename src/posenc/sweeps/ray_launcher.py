"""A launcher that runs jobs as tasks of a Ray cluster."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from posenc.runs.status import Status
from posenc.sweeps.launcher import PlannedRun, check_positive
from posenc.sweeps.progress import PlainDisplay, plural, status_line
from posenc.sweeps.worker import Worker, import_extra


class RayLauncher:
    """A task of `num_cpus` cores per run; `gpus` requests a GPU for each device of a run.

    `address` is the cluster's; None starts one on this machine. The tasks end with this launcher,
    after a checkpoint.
    """

    local = False

    def __init__(
        self, address: str | None, num_cpus: int, gpus: bool, *, console: Console | None = None
    ) -> None:
        check_positive(num_cpus=num_cpus)
        self.address, self.num_cpus, self.gpus = address, num_cpus, gpus
        self.display = PlainDisplay(console or Console(stderr=True))

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job; see `Launcher.launch`."""
        ray = import_extra("ray")
        outcomes: dict[str, Status] = {}
        count = plural(len(runs), "run")
        self.display.print(f"{count} on Ray, {finished} already finished")
        ray.init(self.address, include_dashboard=False, log_to_driver=False)
        try:
            active = {self._submit(ray, planned): planned for planned in runs}
            while active:
                (task,), _ = ray.wait(list(active))
                planned = active.pop(task)
                outcomes[planned.name] = status = planned.run.status()
                self.display.print(f"■ {status_line(planned.run, status)}")
        finally:
            ray.shutdown()
        return outcomes

    def _submit(self, ray: Any, planned: PlannedRun) -> Any:
        on_gpus = self.gpus and planned.accelerator != "cpu"
        resources = {"num_cpus": self.num_cpus, "num_gpus": planned.devices if on_gpus else 0}
        return (
            ray.remote(_call)
            .options(max_retries=0, **resources)
            .remote(Worker(planned, self.num_cpus))
        )


def _call(worker: Worker) -> None:
    worker()
