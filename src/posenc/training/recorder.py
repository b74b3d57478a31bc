"""The callback that writes the metrics, timing, checkpoints and progress of a run."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from posenc.config.errors import RunError
from posenc.config.steps import TrainingSteps, evaluated_steps
from posenc.runs.environment import peak_megabytes, rank
from posenc.runs.files import RowsDigest, append_jsonl, flush_to_disk
from posenc.runs.run_directory import STOPPED_EARLY
from posenc.training.callbacks import MONITORABLE_METRICS, CallbackMetrics, check_averaging_started
from posenc.training.checkpoint import (
    METRICS_DIGEST,
    list_checkpoints,
    save_checkpoint,
    save_weights,
)
from posenc.training.distributed import all_reduce_sum
from posenc.training.session import Session

log = logging.getLogger("posenc")
COMPILING_STEPS = 2
"""torch.compile compiles in the first step, and may recompile in the second."""


class Recorder(pl.Callback):
    """Writes a row of metrics per step, and checkpoints at intervals and when training ends.

    It also saves the weights at `evaluation.at_tokens`.
    """

    def __init__(
        self,
        session: Session,
        steps: TrainingSteps,
        training_fraction: float,
        validate: Callable[[], float] | None,
        callbacks: Sequence[pl.Callback] = (),
        callback_metrics: CallbackMetrics | None = None,
    ) -> None:
        self.session, self.steps, self.training_fraction = session, steps, training_fraction
        self.validate, self.callbacks, self.callback_metrics = validate, callbacks, callback_metrics
        self.stopped_early = False
        config = session.config
        self.batch_tokens: int = config.batch_tokens
        every_tokens = config.validation.every_tokens or 0
        self.validation_interval = max(1, round(every_tokens / self.batch_tokens))
        self.steps_with_weights = {
            step for tokens, step in evaluated_steps(config).items() if tokens is not None
        }
        self._losses: list[Tensor] = []
        self._unlogged_rows: list[dict[str, Any]] = []
        self._metrics_digest = RowsDigest()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.stop.install_handlers()
        if rank() == 0:
            self._metrics_digest.update(self.session.run.metrics())
        self._saved_at = self._timed_at = time.monotonic()
        self._timed_step = trainer.global_step
        self._step_seconds = [0.0]  # of this job's first steps, without validation

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch_started = time.monotonic()
        self._learning_rate = trainer.optimizers[0].param_groups[0]["lr"]

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        self._losses.append(outputs["loss"].detach())
        self._step_seconds[-1] += time.monotonic() - self._batch_started
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        step = trainer.global_step
        loss, stop, save = self._synchronize()
        row = self._metrics_row(step, loss, getattr(pl_module, "gradient_norm", None))
        self._notify_callbacks(trainer, pl_module, row)
        self.stopped_early = trainer.should_stop and step < self.steps.total
        self._log_compile_seconds()
        self._record(trainer, row)
        # Weights first: a run resumed from this step's checkpoint would not save them.
        if step in self.steps_with_weights:
            self._save(trainer, step, weights_only=True)
        ended = self.stopped_early or step == self.steps.total
        if ended:
            check_averaging_started(self.callbacks)
        if save or stop or ended:
            self._save(trainer, step, weights_only=False)
            self._saved_at = time.monotonic()
            self.session.log_metrics(self._unlogged_rows)
            self._unlogged_rows = []
        if stop:
            trainer.should_stop = True
        work_done = self.training_fraction * step / self.steps.total
        self.session.progress.update(
            step=step, tokens=step * self.batch_tokens, work_done=work_done
        )

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[METRICS_DIGEST] = self._metrics_digest.short_hexdigest()

    def _synchronize(self) -> tuple[float, bool, bool]:
        """Return the mean loss over all devices, whether to stop, and whether to save."""
        # Lightning has divided the loss of each micro-batch by the number of micro-batches.
        loss = sum(loss.item() for loss in self._losses)
        self._losses.clear()
        interval = self.session.config.checkpoint.every_seconds
        save = rank() == 0 and time.monotonic() - self._saved_at >= interval
        stop = self.session.stop.requested()
        total, stops, saves = all_reduce_sum(np.array([loss, stop, save], dtype=np.float64))
        return float(total) / self.steps.devices, stops > 0, saves > 0

    def _log_compile_seconds(self) -> None:
        """After a job's third step, log how much longer its first two took because of compiling."""
        if self.session.resolved.compile and len(self._step_seconds) == COMPILING_STEPS + 1:
            *compiling, compiled = self._step_seconds
            seconds = round(max(0.0, sum(compiling) - COMPILING_STEPS * compiled), 1)
            log.info("torch.compile took %.1f s", seconds)
            self.session.progress.update(compile_seconds=seconds)
        if len(self._step_seconds) <= COMPILING_STEPS + 1:
            self._step_seconds.append(0.0)

    def _metrics_row(self, step: int, loss: float, gradient_norm: Tensor | None) -> dict[str, Any]:
        """Return the row of a step, with the validation loss if it is due.

        A gradient norm that is not finite is left out.
        """
        self._check_finite("loss", loss, step, updates=step - 1)
        row: dict[str, Any] = {
            "step": step,
            "tokens": step * self.batch_tokens,
            "loss": loss,
            "learning_rate": self._learning_rate,
        }
        if gradient_norm is not None and math.isfinite(norm := gradient_norm.item()):
            row["gradient_norm"] = norm
        validation_due = step % self.validation_interval == 0 or step == self.steps.total
        if self.validate is not None and validation_due:
            row["validation_loss"] = self.validate()
            self._check_finite("validation loss", row["validation_loss"], step, updates=step)
        return row

    def _notify_callbacks(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, row: dict[str, Any]
    ) -> None:
        """Pass the metrics of a step to the run's callbacks; notify them if validation has run."""
        metrics = {key: torch.tensor(row[key]) for key in MONITORABLE_METRICS if key in row}
        trainer.callback_metrics.update(metrics)
        if "validation_loss" in row:
            for callback in self.callbacks:
                callback.on_validation_end(trainer, pl_module)

    def _record(self, trainer: pl.Trainer, row: dict[str, Any]) -> None:
        """Write the row of a step, including the metrics that the callbacks logged."""
        logged: dict[str, float] = {}
        if self.callback_metrics is not None:
            # Lightning would pass these to its loggers only after the hooks of the step.
            self.callback_metrics.log_metrics(trainer.logged_metrics)
            logged = self.callback_metrics.take()
        row = {**row, **{key: value for key, value in logged.items() if key not in row}}
        if self.stopped_early:
            row[STOPPED_EARLY] = True
        if rank() == 0:
            append_jsonl(self.session.run.metrics_file, row)
            self._metrics_digest.update([row])
            self._unlogged_rows.append(row)
            self._record_timing(row["step"])

    def _check_finite(self, name: str, loss: float, step: int, updates: int) -> None:
        """Raise RunError unless `loss`, computed after `updates` weight updates, is finite."""
        if math.isfinite(loss):
            return
        checkpoints = list_checkpoints(self.session.run.checkpoints)
        steps = [c.step for c in checkpoints if c.step < updates]  # their weights are finite
        last = "there is no good checkpoint"
        if steps:
            last = f"the last good checkpoint is from step {steps[0]}"
        clip = (
            " or gradient_clip" if self.session.config.gradient_clip else ", or set gradient_clip"
        )
        learning_rate = "lr" if "lr" in self.session.config.optimizer else "learning_rate"
        raise RunError(
            f"the {name} is not finite at step {step} ({loss}); {last}; lower"
            f" optimizer.{learning_rate}{clip}"
        )

    def _record_timing(self, step: int) -> None:
        now = time.monotonic()
        if now - self._timed_at < 1.0 and step < self.steps.total:
            return
        rate = (step - self._timed_step) * self.batch_tokens / (now - self._timed_at)
        row = {
            "step": step,
            "seconds": round(now - self._timed_at, 3),
            "tokens_per_second": round(rate, 1),
            "memory_mb": round(peak_megabytes(), 1),
        }
        append_jsonl(self.session.run.timing_file, row)
        self.session.progress.update(tokens_per_second=rate)
        self._timed_at, self._timed_step = now, step

    def _save(self, trainer: pl.Trainer, step: int, *, weights_only: bool) -> None:
        folder = self.session.run.checkpoints
        write = partial(trainer.save_checkpoint, weights_only=weights_only)
        if rank() == 0:
            flush_to_disk(self.session.run.metrics_file)  # resuming needs the rows of all steps
            save = save_weights if weights_only else save_checkpoint
            save(folder, step, write)
        else:  # takes part in gathering sharded weights, but writes no file
            write(folder)
