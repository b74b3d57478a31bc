"""Trackers that log with Lightning's loggers to files in the run directory."""

import logging
import shutil
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import describe_error, import_extra
from posenc.runs.row_types import Row
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import JobType, Tracker
from posenc.tracking.wandb_history import LENGTH_AXIS, evaluation_history, training_row

if TYPE_CHECKING:
    from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

log = logging.getLogger(__name__)


class LightningTracker(Tracker, ABC):
    """Logs a run to `folder` in its run directory, with the same metric names as in W&B.

    The folder is rewritten from the files of the run whenever a process opens the run. Each step of
    training is therefore logged only once, no matter how often the run is interrupted or evaluated.
    """

    folder: str
    _logger: "CSVLogger | TensorBoardLogger | None" = None

    def start(self, run: RunDirectory, config: DictConfig, job_type: JobType = "train") -> None:
        self._directory, self._config, self._last_step = run, config, 0
        with self._failures_as_warnings():
            shutil.rmtree(run.path / self.folder, ignore_errors=True)
            self._logger = self.open(run.path)
            self._logger.log_hyperparams(OmegaConf.to_container(config))  # type: ignore[arg-type]

    def log(self, rows: list[dict[str, Any]]) -> None:
        with self._failures_as_warnings():
            if rows and rows[0]["step"] > self._last_step + 1:
                rows = [r for r in self._directory.metrics() if r["step"] <= rows[-1]["step"]]
            for row in rows:
                self._log(training_row(row), row["step"])
                self._last_step = row["step"]
            if self._logger is not None:
                self._logger.save()

    def finish(self, failed: bool, error: str | None = None) -> None:
        with self._failures_as_warnings():
            self.log(self._directory.metrics()[self._last_step :])
            for row in evaluation_history(self._directory.rows(), {}, self._config):
                self._log(row, self.evaluation_step(row))
            if self._logger is not None:
                self._logger.finalize("failed" if failed else "success")
            self._logger = None

    @abstractmethod
    def open(self, path: Path) -> "CSVLogger | TensorBoardLogger":
        """Return a logger that writes to `path / self.folder`."""

    def evaluation_step(self, row: Row) -> int:
        """Return the step at which an evaluation result is logged: the last training step."""
        return self._last_step

    def _log(self, row: Row, step: int) -> None:
        if self._logger is not None:
            self._logger.log_metrics({key: row[key] for key in row if key != "step"}, step)

    @contextmanager
    def _failures_as_warnings(self) -> Generator[None]:
        """Log a failure as a warning and continue the run without the logger."""
        try:
            yield
        except Exception as error:
            self._logger = None
            log.warning(
                "%s/ of %s is incomplete (%s); the run continues without it, and the folder is"
                " rewritten when the run is resumed or evaluated",
                self.folder,
                self._directory.name,
                describe_error(error),
            )


class CsvTracker(LightningTracker):
    """Writes `csv/metrics.csv`: one row per step, then one per evaluation result."""

    folder = "csv"

    def open(self, path: Path) -> "CSVLogger":
        from pytorch_lightning.loggers import CSVLogger  # takes seconds to import

        return CSVLogger(path, name="", version=self.folder)


class TensorBoardTracker(LightningTracker):
    """Writes `tensorboard/`, for `tensorboard --logdir outputs/<experiment>`.

    Evaluation results are logged with the evaluation length as the step. Raises ConfigError if
    TensorBoard is missing.
    """

    folder = "tensorboard"

    def __init__(self) -> None:
        import_extra("tensorboard", "logger=tensorboard")

    def open(self, path: Path) -> "TensorBoardLogger":
        from pytorch_lightning.loggers import TensorBoardLogger

        return TensorBoardLogger(path, name="", version=self.folder, default_hp_metric=False)

    def evaluation_step(self, row: Row) -> int:
        return row[LENGTH_AXIS]
