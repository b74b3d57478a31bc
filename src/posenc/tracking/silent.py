"""No mirror: the run's own files only."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from posenc.record.rundir import RunDirectory
from posenc.tracking.inspection import Tables


class Silent:
    """The tracker of `logger=none`."""

    def start(self, run: RunDirectory, config: DictConfig) -> None:
        pass

    def log(self, rows: list[dict[str, Any]]) -> None:
        pass

    def finish(self, failed: bool) -> None:
        pass

    def inspection(
        self,
        run: RunDirectory,
        config: Mapping[str, Any],
        tables: Tables,
        images: Sequence[Path],
    ) -> None:
        pass
