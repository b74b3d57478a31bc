"""The callback that writes a run's record: metrics, timing, checkpoints, progress."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from torch import Tensor

from posenc.config.errors import RunError
from posenc.config.settings import Steps
from posenc.runs.environment import rank
from posenc.runs.files import append_line
from posenc.runs.memory import peak_megabytes
from posenc.runs.metrics import MetricsLog
from posenc.training.checkpoint import found, save
from posenc.training.distributed import summed
from posenc.training.session import Session


class Recorder(pl.Callback):
    """Writes a row of metrics for every optimizer step, and checkpoints by time and at the end."""

    def __init__(
        self,
        session: Session,
        steps: Steps,
        training_fraction: float,
        validate: Callable[[], float] | None,
    ) -> None:
        self.session, self.steps, self.training_fraction = session, steps, training_fraction
        self.validate = validate
        config = session.config
        self.batch_tokens: int = config.batch_tokens
        every = config.validation.every_tokens or 0
        self.validate_steps = max(1, round(every / self.batch_tokens))
        self.metrics = MetricsLog(session.run.metrics_file)
        self._losses: list[Tensor] = []
        self._unsent: list[dict[str, Any]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.session.stop.listen()
        self._saved = self._timed = time.monotonic()
        self._timed_step = trainer.global_step

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
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
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        step = trainer.global_step
        loss, asked, due = self._settle()
        self._log(step, loss)
        if due or asked or step == self.steps.total:
            self._checkpoint(trainer, step)
        if asked:
            trainer.should_stop = True
        share = self.training_fraction * step / self.steps.total
        self.session.progress.update(step=step, tokens=step * self.batch_tokens, work_done=share)

    def _settle(self) -> tuple[float, bool, bool]:
        """The step's loss over all devices, and whether to stop, or to save, now."""
        loss = sum(loss.item() for loss in self._losses)  # each already divided by their number
        self._losses.clear()
        due = time.monotonic() - self._saved >= self.session.config.checkpoint.every_seconds
        told = np.array([loss, self.session.stop.asked(), due and rank() == 0], dtype=np.float64)
        total, stops, saves = summed(told).tolist()
        return total / self.steps.devices, stops > 0, saves > 0

    def _log(self, step: int, loss: float) -> None:
        self._refuse_nan("loss", loss, step, updates=step - 1)
        row: dict[str, Any] = {
            "step": step,
            "tokens": step * self.batch_tokens,
            "loss": loss,
            "learning_rate": self._learning_rate,
        }
        last = step == self.steps.total
        if self.validate is not None and (step % self.validate_steps == 0 or last):
            row["validation_loss"] = self.validate()
            self._refuse_nan("validation loss", row["validation_loss"], step, updates=step)
        if rank() == 0:
            self.metrics.append(row)
            self._unsent.append(row)
            self._time(step)

    def _refuse_nan(self, name: str, loss: float, step: int, updates: int) -> None:
        """RunError for a loss that is no number; the weights had seen so many `updates`."""
        if math.isfinite(loss):
            return
        good = [str(c.step) for c in found(self.session.run.checkpoints) if c.step < updates]
        kept = f"the last good state is kept: the checkpoint of step {good[0]}" if good else ""
        raise RunError(
            f"the {name} is not a number at step {step} ({loss});"
            f" {kept or 'there is no checkpoint from before it'};"
            f" lower optimizer.learning_rate or gradient_clip"
        )

    def _time(self, step: int) -> None:
        now = time.monotonic()
        if now - self._timed < 1.0 and step < self.steps.total:
            return
        rate = (step - self._timed_step) * self.batch_tokens / (now - self._timed)
        row = {
            "step": step,
            "seconds": round(now - self._timed, 3),
            "tokens_per_second": round(rate, 1),
            "memory_mb": round(peak_megabytes(), 1),
        }
        append_line(self.session.run.timing_file, row)
        self.session.progress.update(tokens_per_second=rate)
        self._timed, self._timed_step = now, step

    def _checkpoint(self, trainer: pl.Trainer, step: int) -> None:
        def write(path: Path) -> None:
            trainer.save_checkpoint(path, weights_only=False)

        if rank() == 0:
            save(self.session.run.checkpoints, step, write)
        else:
            write(self.session.run.checkpoints)  # nothing: but parts are put together by all
        self._saved = time.monotonic()
        self.session.sink.log(self._unsent)
        self._unsent = []
