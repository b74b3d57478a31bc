"""The launchers that hand runs to a scheduler, where Hydra looks for them."""

from collections.abc import Mapping
from typing import Any

from hydra_plugins.posenc.launcher import RunsLauncher
from posenc.sweeps.on_ray import RayCluster
from posenc.sweeps.queued import Queue


class SlurmLauncher(RunsLauncher):
    """Jobs of a Slurm cluster."""

    here = False

    def __init__(
        self,
        jobs: int | None,
        threads: int,
        minutes: int,
        gpus: bool,
        options: Mapping[str, Any],
    ) -> None:
        self._settings: dict[str, Any] = {"jobs": jobs, "threads": threads, "minutes": minutes}
        self._settings |= {"gpus": gpus, "options": options}

    def _made(self) -> Queue:
        return Queue("slurm", **self._settings)


class LocalLauncher(RunsLauncher):
    """Processes of this machine, by the same way as Slurm's."""

    def __init__(self, jobs: int | None, threads: int, minutes: int) -> None:
        self._settings: dict[str, Any] = {"jobs": jobs, "threads": threads, "minutes": minutes}

    def _made(self) -> Queue:
        return Queue("local", **self._settings)


class RayLauncher(RunsLauncher):
    """Tasks of a Ray cluster."""

    here = False

    def __init__(self, address: str | None, threads: int, gpus: bool) -> None:
        self._settings: dict[str, Any] = {"address": address, "threads": threads, "gpus": gpus}

    def _made(self) -> RayCluster:
        return RayCluster(**self._settings)
