"""The callback that writes a run's record: metrics, timing, checkpoints, progress."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
from torch import Tensor

from posenc.config.errors import RunError
from posenc.record.files import append_line
from posenc.record.memory import peak_megabytes
from posenc.record.metrics import MetricsLog
from posenc.record.progress import Progress
from posenc.record.rundir import RunDirectory
from posenc.training.checkpoint import save
from posenc.training.stop import Stop


class Sink(Protocol):
    """Whoever mirrors the metrics; rows come once a checkpoint covers them."""

    def log(self, rows: list[dict[str, Any]]) -> None: ...


class Recorder(pl.Callback):
    """Writes a row of metrics for every optimizer step, and checkpoints by time and at the end."""

    def __init__(
        self,
        run: RunDirectory,
        progress: Progress,
        stop: Stop,
        sink: Sink,
        *,
        batch_tokens: int,
        total_steps: int,
        checkpoint_seconds: float,
        training_share: float,
        validate: Callable[[], float] | None,
        validate_steps: int,
    ) -> None:
        self.run, self.progress, self.stop, self.sink = run, progress, stop, sink
        self.metrics = MetricsLog(run.metrics_file)
        self.batch_tokens, self.total_steps = batch_tokens, total_steps
        self.checkpoint_seconds, self.training_share = checkpoint_seconds, training_share
        self.validate, self.validate_steps = validate, validate_steps
        self._losses: list[Tensor] = []
        self._unsent: list[dict[str, Any]] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.stop.listen()
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
        self._log(step)
        asked = self.stop.asked()
        due = time.monotonic() - self._saved >= self.checkpoint_seconds
        if due or asked or step == self.total_steps:
            self._checkpoint(trainer, step)
        if asked:
            trainer.should_stop = True
        share = self.training_share * step / self.total_steps
        self.progress.update(step=step, tokens=step * self.batch_tokens, work_done=share)

    def _log(self, step: int) -> None:
        loss = sum(loss.item() for loss in self._losses)  # each already divided by their number
        self._losses.clear()
        if loss != loss:
            raise RunError(
                f"the loss is not a number at step {step}; the checkpoint before it is kept;"
                f" lower optimizer.learning_rate or set gradient_clip"
            )
        row: dict[str, Any] = {
            "step": step,
            "tokens": step * self.batch_tokens,
            "loss": loss,
            "learning_rate": self._learning_rate,
        }
        last = step == self.total_steps
        if self.validate is not None and (step % self.validate_steps == 0 or last):
            row["validation_loss"] = self.validate()
        self.metrics.append(row)
        self._unsent.append(row)
        self._time(step)

    def _time(self, step: int) -> None:
        now = time.monotonic()
        if now - self._timed < 1.0 and step < self.total_steps:
            return
        rate = (step - self._timed_step) * self.batch_tokens / (now - self._timed)
        row = {
            "step": step,
            "seconds": round(now - self._timed, 3),
            "tokens_per_second": round(rate, 1),
            "memory_mb": round(peak_megabytes(), 1),
        }
        append_line(self.run.timing_file, row)
        self.progress.update(tokens_per_second=rate)
        self._timed, self._timed_step = now, step

    def _checkpoint(self, trainer: pl.Trainer, step: int) -> None:
        def write(path: Path) -> None:
            trainer.save_checkpoint(path, weights_only=False)

        save(self.run.checkpoints, step, write)
        self._saved = time.monotonic()
        self.sink.log(self._unsent)
        self._unsent = []
