"""What mirrors a run elsewhere; the files of the run directory stay the truth."""

from typing import Any, Protocol

from omegaconf import DictConfig

from posenc.runs.run_directory import RunDirectory
from posenc.tracking.inspection import Inspection


class Tracker(Protocol):
    """A config group `logger`. Nothing it does may stop, stall or fail a run."""

    def start(self, run: RunDirectory, config: DictConfig) -> None: ...

    def log(self, rows: list[dict[str, Any]]) -> None:
        """Mirror rows of `metrics.jsonl` that a durable checkpoint covers."""

    def finish(self, failed: bool) -> None:
        """Mirror what was evaluated, and say how the run ended."""

    def inspection(self, found: Inspection) -> None:
        """Mirror an inspection, from start to finish."""
