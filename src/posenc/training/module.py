"""The Lightning module: one step's loss, its optimizer and its schedule."""

from collections.abc import Callable

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from posenc.model.decoder import Decoder
from posenc.model.transformer import seed_of
from posenc.training.batches import Batch


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
        self.losses = torch.compile(model.losses) if compile else model.losses

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # Draws become a function of seed and step, so that no random state has to be saved.
        torch.manual_seed(seed_of(self.seed, f"batch {batch_idx} rank {self.global_rank}"))
        self.model.encoding.progress((self.global_step + 1) / self.total_steps)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        inputs, targets, scored = batch
        return self.losses(inputs, targets).sum() / scored

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
