"""No mirror: the run's own files only."""

from typing import Any

from omegaconf import DictConfig

from posenc.record.rundir import RunDirectory


class Silent:
    """The tracker of `logger=none`."""

    def start(self, run: RunDirectory, config: DictConfig) -> None:
        pass

    def log(self, rows: list[dict[str, Any]]) -> None:
        pass

    def finish(self, failed: bool) -> None:
        pass
