"""Stochastic weight averaging (Izmailov et al. 2018, arXiv:1803.05407) over optimizer steps."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import WeightAveraging


class StochasticWeightAveraging(WeightAveraging):
    """Averages the weights over the last optimizer steps, and saves the average in checkpoints.

    The first `start_fraction` of the steps is not included. Raises ValueError unless
    `start_fraction` is at least 0 and below 1.
    """

    def __init__(self, start_fraction: float = 0.75) -> None:
        if not 0 <= start_fraction < 1:
            raise ValueError(f"start_fraction={start_fraction} must be at least 0 and below 1")
        super().__init__(use_buffers=False)
        self.start_fraction = start_fraction
        self._start_step = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._start_step = int(self.start_fraction * trainer.max_steps)

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and step_idx >= self._start_step

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # Until averaging starts, the averaged model still has the initial weights.
        if self._average_model is not None and self._average_model.n_averaged == 0:
            self._average_model.module.load_state_dict(pl_module.state_dict())
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
