"""The interface of experiment trackers (config group `logger`), and the `NullTracker`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from omegaconf import DictConfig

from posenc.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from posenc.report.table import Table  # imports rich

JobType = Literal["train", "evaluate"]


class Inspection(NamedTuple):
    """The results of `posenc inspect`.

    The tracked run is named after the inspected run `run`; `images` are PNG files.
    """

    run: RunDirectory
    config: Mapping[str, Any]
    tables: Mapping[str, "Table"]
    images: Sequence[Path]


class Tracker:
    """Mirrors a run to a dashboard; by default, its methods do nothing.

    The methods must not stop the run, make it fail, or delay it for long.
    """

    def start(self, run: RunDirectory, config: DictConfig, job_type: JobType = "train") -> None:
        """Open the tracked run, or reopen it if the run was interrupted or is evaluated again."""

    def log(self, rows: list[dict[str, Any]]) -> None:
        """Log rows of `metrics.jsonl` up to the step of a saved checkpoint."""

    def finish(self, failed: bool, error: str | None = None) -> None:
        """Log the evaluation results and close the tracked run as finished or failed.

        A run that was asked to stop is closed as failed, but without an `error`.
        """

    def log_inspection(self, inspection: Inspection) -> None:
        """Log an inspection as a separate tracked run."""


class NullTracker(Tracker):
    """Tracks nothing (`logger=none`)."""
