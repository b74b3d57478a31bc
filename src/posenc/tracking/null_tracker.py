"""No mirror: the run's own files only."""

from typing import Any

from omegaconf import DictConfig

from posenc.runs.run_directory import RunDirectory
from posenc.tracking.inspection import Inspection


class NullTracker:
    """The tracker of `logger=none`."""

    def start(self, run: RunDirectory, config: DictConfig) -> None:
        pass

    def log(self, rows: list[dict[str, Any]]) -> None:
        pass

    def finish(self, failed: bool) -> None:
        pass

    def inspection(self, found: Inspection) -> None:
        pass
