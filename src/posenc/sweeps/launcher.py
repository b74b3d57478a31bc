"""The interface of launchers: `hydra/launcher` chooses one, and a sweep calls its `launch`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posenc.config.errors import ConfigError
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


@dataclass(frozen=True)
class PlannedRun:
    """A run that is ready to start, with the arguments and devices of its process."""

    run: RunDirectory
    modules: tuple[str, ...] = ()
    devices: int = 1
    accelerator: str = "auto"

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def job_arguments(self) -> list[str]:
        """Arguments of `posenc.jobs.job`, without the number of threads."""
        return [str(self.run.path), *(word for name in self.modules for word in ("--module", name))]


class Launcher(Protocol):
    """Runs jobs to their end.

    `local` is True if runs use the devices of this machine, so that planning can check for them.
    """

    local: bool

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job and return the status in which each ended, by name.

        `finished` further runs of the sweep were finished before and count in the display.
        """
        ...


def check_positive(**options: int) -> None:
    """Raise ConfigError for options of a launcher that are not integers of at least 1."""
    for name, value in options.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"hydra.launcher.{name}={value} must be at least 1")
