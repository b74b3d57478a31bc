"""A launcher that runs jobs as tasks on a Ray cluster."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc.config.console import Console
from posenc.config.errors import import_extra, plural
from posenc.runs.status import Status
from posenc.sweeps.launcher import Launcher, PlannedRun, check_positive
from posenc.sweeps.progress import PlainDisplay, status_line
from posenc.sweeps.worker import Worker


class RayLauncher(Launcher):
    """Runs each job as a Ray task with `num_cpus` cores and, if `gpus`, one GPU per device.

    `address` is the address of the cluster; None means RAY_ADDRESS, or a cluster that runs on this
    machine, or a new one. When the launcher stops, the tasks save a checkpoint and end.
    """

    def __init__(self, address: str | None, num_cpus: int, gpus: bool) -> None:
        check_positive(num_cpus=num_cpus)
        self.local = address is None and os.environ.get("RAY_ADDRESS", "") in ("", "local")
        self.address, self.num_cpus, self.gpus = address, num_cpus, gpus
        self.console = Console(stderr=True)

    @property
    def display(self) -> PlainDisplay:
        return PlainDisplay(self.console)

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job; see `Launcher.launch`."""
        ray = import_extra("ray", "this launcher")
        outcomes: dict[str, Status] = {}
        count = plural(len(runs), "run")
        self.display.print(f"submitting {count} (Ray), {finished} already finished")
        ray.init(self.address, include_dashboard=False, log_to_driver=False)
        try:
            code = self.freeze_code(runs[0].run.path.absolute().parent)
            active = {self._submit(ray, planned, code): planned for planned in runs}
            while active:
                (task,), _ = ray.wait(list(active))
                planned = active.pop(task)
                outcomes[planned.name] = status = planned.run.status()
                self.display.print(f"■ {status_line(planned.run, status)}")
        finally:
            ray.shutdown()
        return outcomes

    def _submit(self, ray: Any, planned: PlannedRun, code: Path) -> Any:
        on_gpus = self.gpus and planned.accelerator != "cpu"
        resources = {"num_cpus": self.num_cpus, "num_gpus": planned.devices if on_gpus else 0}
        run_worker = ray.remote(_run_worker).options(max_retries=0, **resources)
        return run_worker.remote(Worker(planned, self.num_cpus, code))


def _run_worker(worker: Worker) -> None:
    worker()
