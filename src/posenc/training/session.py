"""Everything that the training of one run needs."""

from dataclasses import dataclass
from typing import Any, Protocol

from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Progress, ResolvedSettings
from posenc.training.stop import StopRequest


class MetricsSink(Protocol):
    """Mirrors the training metrics, which it receives once a checkpoint covers them."""

    def log(self, rows: list[dict[str, Any]]) -> None: ...


@dataclass(frozen=True)
class Session:
    """What training a run needs.

    `encoding` is the run's encoding before training; `resolved` are the settings of its start.
    """

    run: RunDirectory
    config: DictConfig
    encoding: Encoding
    resolved: ResolvedSettings
    data: Dataset
    progress: Progress
    stop: StopRequest
    sink: MetricsSink
