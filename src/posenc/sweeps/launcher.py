"""The interface of launchers; the config group `hydra/launcher` selects a sweep's launcher."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console

from posenc.config.errors import ConfigError
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


@dataclass(frozen=True)
class PlannedRun:
    """A run of a planned sweep, with the modules and devices that its process needs.

    `problem` says why the run's directory cannot be used; such a run is not launched.
    """

    run: RunDirectory
    modules: tuple[str, ...] = ()
    devices: int = 1
    accelerator: str = "auto"
    problem: str | None = None

    @property
    def name(self) -> str:
        return self.run.name

    def status(self) -> Status:
        """Return the status of the run: failed if its directory cannot be used."""
        return Status(state="failed", error=self.problem) if self.problem else self.run.status()

    @property
    def job_arguments(self) -> list[str]:
        """The run and its modules, as arguments of `posenc.jobs.job`."""
        return [str(self.run.path), *(f"--module={name}" for name in self.modules)]


class Launcher(Protocol):
    """Launches the runs of a sweep.

    `local` is True if the runs use this machine's devices; planning then checks that they exist.
    Progress is printed to `console`.
    """

    local: bool
    console: Console

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run all `runs` until they end, and return the final status of each run by name.

        `finished` is the number of other runs of the sweep that are already finished; the displayed
        counts include them.
        """
        ...


def check_positive(**options: int | None) -> None:
    """Raise ConfigError if an option of a launcher is neither null nor a positive integer."""
    for name, value in options.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"hydra.launcher.{name}={value} must be a positive integer or null")
