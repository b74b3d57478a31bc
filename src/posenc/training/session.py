"""Everything that is needed to train one run."""

from dataclasses import dataclass
from typing import Any, Protocol

from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Progress, ResolvedSettings
from posenc.training.stop import StopRequest


class MetricsSink(Protocol):
    """Receives rows of training metrics after each checkpoint, for example to upload them."""

    def log(self, rows: list[dict[str, Any]]) -> None: ...


@dataclass(frozen=True)
class Session:
    """What training a run needs.

    `encoding` is the run's encoding before training; `resolved` are the settings resolved when the
    run started. `progress` and `sink` receive its progress and metrics; `stop` is set when it
    should stop.
    """

    run: RunDirectory
    config: DictConfig
    encoding: Encoding
    resolved: ResolvedSettings
    data: Dataset
    progress: Progress
    stop: StopRequest
    sink: MetricsSink
