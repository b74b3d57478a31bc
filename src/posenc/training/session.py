"""What a run's process works with."""

from dataclasses import dataclass
from typing import Any, Protocol

from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.runs.progress import Progress
from posenc.runs.run_directory import RunDirectory
from posenc.training.stop import Stop


class Sink(Protocol):
    """Whoever mirrors the metrics; rows come once a checkpoint covers them."""

    def log(self, rows: list[dict[str, Any]]) -> None: ...


@dataclass(frozen=True)
class Session:
    """A run's directory, configuration and data, who asks it to stop, and who is told of it."""

    run: RunDirectory
    config: DictConfig
    data: Dataset
    progress: Progress
    stop: Stop
    sink: Sink
