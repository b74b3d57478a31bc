"""The Lightning module: one step's loss, its optimizer and its schedule."""

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from posenc.model.decoder import Decoder
from posenc.model.transformer import seed_of
from posenc.runs.environment import rank, world_size
from posenc.training.batches import Batch
from posenc.training.sharded import shard


class LanguageModel(pl.LightningModule):
    """`model` trained on next-token loss in nats for `total_steps` optimizer steps.

    The loss is the mean over the targets that are scored.
    """

    def __init__(
        self,
        model: Decoder,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        schedule: Callable[[int, int], float],
        total_steps: int,
        seed: int,
        *,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.total_steps, self.seed = total_steps, seed
        self.compiled = compile
        self.losses = self._losses()

    def _losses(self) -> Callable[[Tensor, Tensor], Tensor]:
        return torch.compile(self.model.losses) if self.compiled else self.model.losses

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Draws become a function of seed and micro-batch, so that no random state has to be saved
        # and the devices draw what one would for the same micro-batches.
        number = batch_idx * world_size() + rank()
        torch.manual_seed(seed_of(self.seed, f"batch {number}"))
        self.model.encoding.set_training_progress((self.global_step + 1) / self.total_steps)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        inputs, targets, scored = batch
        return self.losses(inputs, targets).sum() / scored

    def configure_model(self) -> None:
        if self.device_mesh is not None:  # of FullySharded
            shard(self.model, self.device_mesh["data_parallel"])
            self.losses = self._losses()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Lightning counts a device's micro-batches, of which a step may have had another number.
        done = checkpoint["global_step"] * self.trainer.accumulate_grad_batches
        for counted in checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"].values():
            if isinstance(counted, dict):
                counted.update(dict.fromkeys(counted, done))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Lightning refuses a fused optimizer under bf16, although nothing is scaled there.
        if gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = self.optimizer(self.model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: self.schedule(step, self.total_steps)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }
