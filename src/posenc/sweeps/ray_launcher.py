"""A launcher that runs jobs as tasks on a Ray cluster."""

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posenc.config.console import Console
from posenc.config.errors import (
    ConfigError,
    RunError,
    describe_error,
    import_extra,
    one_line,
    plural,
)
from posenc.runs.status import Status
from posenc.sweeps.launcher import Launcher, PlannedRun, check_positive, ended_status
from posenc.sweeps.progress import status_line
from posenc.sweeps.worker import Worker

CONNECT_SECONDS = 10.0


class RayLauncher(Launcher):
    """Runs each job as a Ray task with `num_cpus` cores and, if `gpus`, one GPU per device.

    `address` is the address of the cluster. If it is None, Ray connects to RAY_ADDRESS if this is
    set, else to a cluster that is running on this machine, and starts one if there is none. When
    the launcher stops, the tasks save a checkpoint and end.
    """

    def __init__(self, address: str | None, num_cpus: int, gpus: bool) -> None:
        check_positive(num_cpus=num_cpus)
        self.cluster = address or os.environ.get("RAY_ADDRESS", "")
        self.local = self.cluster in ("", "local")
        self.address, self.num_cpus, self.gpus = address, num_cpus, gpus
        self.console = Console(stderr=True)

    def check_available(self) -> None:
        """Raise ConfigError if Ray is not installed, or if nothing listens at the address.

        Ray itself would retry for several minutes.
        """
        import_extra("ray", "this launcher")
        match = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", self.cluster)
        if match is None:
            return
        try:
            server = (match[1], int(match[2]))
            socket.create_connection(server, timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"no Ray cluster can be reached at {self.cluster} ({error}); set"
                f" hydra.launcher.address or RAY_ADDRESS to the address of a running cluster, or"
                f" hydra.launcher.address=local to start one on this machine"
            ) from None

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job; see `Launcher.launch`. Raises RunError if there is no cluster."""
        import ray

        outcomes: dict[str, Status] = {}
        submitted = {planned: planned.run.status() for planned in runs}
        count = plural(len(runs), "run")
        self.print_line(f"submitting {count} (Ray), {finished} already finished")
        try:
            ray.init(self.address, include_dashboard=False, log_to_driver=False)
        except (ConnectionError, ValueError) as error:
            raise RunError(f"cannot connect to a Ray cluster: {one_line(str(error))}") from None
        try:
            self._check_resources(ray, runs)
            code = self.snapshot_code(runs[0].run.path.absolute().parent)
            active = {self._submit(ray, planned, code): planned for planned in runs}
            while active:
                (task,), _ = ray.wait(list(active))
                planned = active.pop(task)
                detail = _task_error(ray, task)
                outcomes[planned.name] = status = ended_status(planned, submitted[planned], detail)
                self.print_line(f"■ {status_line(planned.run, status)}")
        finally:
            ray.shutdown()
        return outcomes

    def _submit(self, ray: Any, planned: PlannedRun, code: Path) -> Any:
        cpus, gpus = self.num_cpus, self._num_gpus(planned)
        run_worker = ray.remote(_run_worker).options(max_retries=0, num_cpus=cpus, num_gpus=gpus)
        return run_worker.remote(Worker(planned, cpus, code))

    def _num_gpus(self, planned: PlannedRun) -> int:
        return planned.devices if self.gpus and planned.accelerator != "cpu" else 0

    def _check_resources(self, ray: Any, runs: Sequence[PlannedRun]) -> None:
        """Raise ConfigError if no node can run all jobs; Ray would wait for one indefinitely.

        For a cluster with an address, which may add nodes, the message is only printed.
        """
        num_gpus = max(self._num_gpus(planned) for planned in runs)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(n.get("CPU", 0) >= self.num_cpus and n.get("GPU", 0) >= num_gpus for n in nodes):
            return
        message = f"no node of the Ray cluster has {plural(self.num_cpus, 'CPU')}"
        if num_gpus:
            message += f" and {plural(num_gpus, 'GPU')}"
        message += " for a run; see hydra.launcher.num_cpus and hydra.launcher.gpus"
        if self.local:
            raise ConfigError(message)
        self.print_line(f"{message}; jobs wait until there is one")


def _run_worker(worker: Worker) -> None:
    worker()


def _task_error(ray: Any, task: Any) -> str:
    """Return why a Ray task has failed."""
    try:
        ray.get(task)
    except Exception as error:
        return describe_error(getattr(error, "cause", None) or error)
    return "its task returned without an error"
