"""The Lightning callbacks of a run (config group `callbacks`), and the metrics that they log."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytorch_lightning as pl
from omegaconf import DictConfig
from pytorch_lightning.loggers.logger import Logger

from posenc.config.components import build
from posenc.config.errors import ConfigError, RunError, import_extra
from posenc.training.weight_averaging import StochasticWeightAveraging

Callback = pl.Callback
MONITORABLE_METRICS = ("loss", "learning_rate", "validation_loss")
"""The metrics that callbacks may monitor."""

REJECTED_CALLBACKS: dict[type[pl.Callback], str] = {
    pl.callbacks.Checkpoint: "posenc saves checkpoints itself; set checkpoint.every_seconds",
    pl.callbacks.ProgressBar: "`posenc train` and `posenc status` show progress",
    pl.callbacks.ModelSummary: "`posenc plan` shows the number of parameters",
    pl.callbacks.GradientAccumulationScheduler: "set micro_batch_tokens",
    pl.callbacks.BatchSizeFinder: "set micro_batch_tokens",
    pl.callbacks.LearningRateFinder: "sweep the learning rate: optimizer.learning_rate=1e-3,2e-3",
    pl.callbacks.StochasticWeightAveraging: (
        "it averages after each epoch, and Lightning sees a run as a single epoch;"
        " set callbacks=stochastic_weight_averaging, which averages after optimizer steps"
    ),
}
"""Callback class that posenc rejects -> what to use instead, with the reason if needed."""
STOPPING_CALLBACKS = (pl.callbacks.EarlyStopping, pl.callbacks.Timer)


def build_callbacks(config: DictConfig) -> list[pl.Callback]:
    """Return the callbacks of a run, in order. Raises ConfigError for one that cannot be used."""
    nodes, modules = config.get("callbacks") or {}, list(config.modules)
    callbacks = []
    for key in nodes:
        name = f"callbacks.{key}"
        callback = build(nodes[key], name=name, modules=modules)
        if reason := _unsupported_reason(callback, config):
            raise ConfigError(f"{name}: {type(callback).__name__} cannot be used: {reason}")
        callbacks.append(callback)
    return callbacks


def check_averaging_started(callbacks: Iterable[pl.Callback]) -> None:
    """Raise RunError if a callback that averages the weights has not started to do so.

    posenc's own callback then saves the trained weights; Lightning's saves the initial ones.
    """
    for callback in callbacks:
        is_averaging = isinstance(callback, pl.callbacks.WeightAveraging)
        if is_averaging and not isinstance(callback, StochasticWeightAveraging):
            model = callback._average_model
            if model is not None and not bool(model.n_averaged):
                raise RunError(
                    f"{type(callback).__name__} has averaged no weights, because training ended"
                    f" before its first update; let it start earlier"
                )


def _unsupported_reason(callback: pl.Callback, config: DictConfig) -> str | None:
    """Return why a callback cannot be used in a run, or None if it can."""
    for rejected, remedy in REJECTED_CALLBACKS.items():
        if isinstance(callback, rejected):
            return remedy
    if isinstance(callback, pl.callbacks.DeviceStatsMonitor):
        import_extra("psutil", "DeviceStatsMonitor")
    monitor = getattr(callback, "monitor", None)
    if monitor is not None and monitor not in MONITORABLE_METRICS:
        return f"monitor={monitor} must be one of {', '.join(MONITORABLE_METRICS)}"
    if isinstance(callback, pl.callbacks.EarlyStopping) and config.validation.every_tokens is None:
        return "it runs after each validation; set validation.every_tokens"
    is_averaging = isinstance(callback, pl.callbacks.WeightAveraging)
    if (is_averaging or isinstance(callback, STOPPING_CALLBACKS)) and config.evaluation.at_tokens:
        return "it cannot be combined with evaluation.at_tokens; set evaluation.at_tokens=[]"
    if is_averaging and (config.compile or config.trainer.strategy == "fsdp"):
        return "it copies the model; set compile=false and trainer.strategy=ddp"
    return None


class CallbackMetrics(Logger):
    """Collects the metrics that callbacks log, for the row of the current step."""

    def __init__(self) -> None:
        super().__init__()
        self._metrics: dict[str, float] = {}

    @property
    def name(self) -> str:
        return "callbacks"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the settings of a run are in its `config.yaml`."""

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        values = {key: float(value) for key, value in metrics.items()}
        self._metrics.update({key: value for key, value in values.items() if math.isfinite(value)})

    def take(self) -> dict[str, float]:
        """Return the finite values that were logged since the last call."""
        taken, self._metrics = self._metrics, {}
        return taken
