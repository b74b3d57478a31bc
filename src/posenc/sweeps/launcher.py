"""The interface of launchers: `hydra/launcher` chooses one, and a sweep calls its `launch`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


@dataclass(frozen=True)
class PlannedRun:
    """A run that is ready to start, and what its process needs to know."""

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

    `local` says that runs have the devices of this machine, so that planning can check for them.
    """

    local: bool

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run every job and return the status in which each ended, by name.

        `finished` further runs of the sweep were finished before and count in the display.
        """
        ...
