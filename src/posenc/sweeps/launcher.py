"""The interface of launchers; the config group `hydra/launcher` selects a sweep's launcher."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.text import Text

from posenc.config.errors import ConfigError
from posenc.runs.code_snapshot import snapshot_code
from posenc.runs.files import file_sha256
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status


@dataclass(frozen=True)
class PlannedRun:
    """A run of a planned sweep, with the modules and devices that its process needs.

    `problem` says why the run's directory cannot be used; such a run is not launched.
    `config_digest` identifies the contents of its `config.yaml` when it was planned.
    `kept_settings` are the keys that the command sets to other values, but whose earlier values the
    run keeps, because it has already started.
    """

    run: RunDirectory
    modules: tuple[str, ...] = ()
    devices: int = 1
    accelerator: str = "auto"
    problem: str | None = None
    config_digest: str | None = None
    kept_settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.run.name

    def status(self) -> Status:
        """Return the status of the run: failed if its directory cannot be used."""
        return Status(state="failed", error=self.problem) if self.problem else self.run.status()

    def final_status(self) -> Status:
        """Return the status after launching: interrupted if another command replanned the run."""
        status = self.status()
        if self.problem or self.config_digest in (None, config_file_digest(self.run)):
            return status
        error = (
            "another command changed its settings in the meantime; rerun this command once that"
            " one has finished"
        )
        return status.replace(state="interrupted", error=error)

    @property
    def job_arguments(self) -> list[str]:
        """The run and its modules, as arguments of `posenc.jobs.job`."""
        return [str(self.run.path), *(f"--module={name}" for name in self.modules)]


def config_file_digest(run: RunDirectory) -> str | None:
    """Return a hash of the contents of a run's `config.yaml`; None if there is no such file."""
    try:
        return file_sha256(run.config_file)
    except (FileNotFoundError, IsADirectoryError):
        return None


class Launcher(Protocol):
    """Launches the runs of a sweep.

    `local` is True if the runs use this machine's devices; planning then checks that they exist.
    Progress is printed to `console`.
    """

    local: bool
    console: Console
    code: Path | None = None

    def print_line(self, line: str) -> None:
        """Print a line of text to the console, without wrapping it."""
        self.console.print(Text(line), soft_wrap=True)

    def snapshot_code(self, folder: Path) -> Path:
        """Copy the code to an experiment's folder, and return the path of the copy.

        The copy is made once per launcher, so all jobs share it, in all rounds of `posenc tune`.
        """
        if self.code is None or self.code.parents[1] != folder or not self.code.is_dir():
            self.code = snapshot_code(folder)
        return self.code

    def check_available(self) -> None:
        """Raise ConfigError if this machine lacks what the launcher needs.

        Called before runs are planned.
        """
        return

    def launch(self, runs: Sequence[PlannedRun], finished: int = 0) -> dict[str, Status]:
        """Run all `runs` to completion, and return the final status of each run by name.

        `finished` is the number of other runs of the sweep that are already finished; the displayed
        counts include them.
        """
        ...


def ended_status(planned: PlannedRun, submitted: Status, detail: str) -> Status:
    """Return the status of a run whose job has ended on a cluster.

    `submitted` is its status at submission. If it has not changed, the job has failed before it
    could start the run; the error then says so and ends with `detail`.
    """
    status = planned.run.status()
    if status == submitted:
        return status.replace(error=f"its job ended before the run started; {detail}")
    return status


def check_positive(**options: int | None) -> None:
    """Raise ConfigError if an option of a launcher is neither null nor a positive integer."""
    for name, value in options.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"hydra.launcher.{name}={value} must be a positive integer or null")
