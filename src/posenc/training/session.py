"""The objects that the training and evaluation of a run share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import ResolvedSettings, StatusWriter
from posenc.training.stop import StopRequest


@dataclass(frozen=True)
class Session:
    """A run and everything needed to train and evaluate it.

    `encoding` is the run's encoding before training; see `ResolvedSettings` for `resolved`.
    `progress` receives the run's progress, and `stop` says whether the run should stop. After each
    checkpoint, `log_metrics` receives the new rows of metrics, for example to upload them.
    """

    run: RunDirectory
    config: DictConfig
    encoding: Encoding
    resolved: ResolvedSettings
    data: Dataset
    progress: StatusWriter
    stop: StopRequest
    log_metrics: Callable[[list[dict[str, Any]]], None]
