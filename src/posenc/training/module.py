"""The Lightning module (training loss, optimizer and schedule) and the validation loss."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from posenc.config.errors import RunError
from posenc.data.dataset import IGNORE_INDEX
from posenc.model.device import autocast
from posenc.model.transformer import Decoder, derive_seed, seed_cpu
from posenc.runs.environment import rank, world_size
from posenc.training.batches import MicroBatch
from posenc.training.checkpoint import RUN_HASH
from posenc.training.distributed import all_reduce_sum
from posenc.training.optimizer import OptimizerFactory
from posenc.training.schedule import build_scheduler

RETRY_WHEN_FREE = "rerun the command with retry=true when nothing else is using the device"


class LanguageModel(pl.LightningModule):
    """Trains `model` on the next-token loss in nats for `total_steps` optimizer steps.

    The loss of a step is the mean over its scored targets. Checkpoints contain `run_hash`, so that
    a run does not load those of another run. `gradient_norm` is the norm of the last
    step's gradient before clipping; None without clipping.
    """

    gradient_norm: Tensor | None = None

    def __init__(
        self,
        model: Decoder,
        optimizer: OptimizerFactory,
        schedule: Callable[..., Any],
        total_steps: int,
        seed: int,
        *,
        compile: bool = False,
        run_hash: str | None = None,
    ) -> None:
        super().__init__()
        self.run_hash = run_hash
        self.model, self.optimizer, self.schedule = model, optimizer, schedule
        self.total_steps, self.seed = total_steps, seed
        self.compile_losses = compile
        self.losses = self._loss_function()

    def _loss_function(self) -> Callable[[Tensor, Tensor], Tensor]:
        return torch.compile(self.model.losses) if self.compile_losses else self.model.losses

    def on_train_batch_start(self, batch: MicroBatch, batch_idx: int) -> None:
        # Random draws depend only on the seed and the micro-batch. No random state has to be saved,
        # and several devices draw the same numbers as one device for the same micro-batches.
        index = batch_idx * world_size() + rank()
        seed = derive_seed(self.seed, f"batch {index}")
        torch.manual_seed(seed)  # on all devices
        seed_cpu(seed)
        self.model.encoding.set_training_progress((self.global_step + 1) / self.total_steps)

    def training_step(self, batch: MicroBatch, batch_idx: int) -> Tensor:
        inputs, targets, targets_per_micro_batch = batch
        return self.losses(inputs, targets).sum() / targets_per_micro_batch

    def configure_model(self) -> None:
        if self.device_mesh is not None:  # with FullyShardedStrategy
            shard(self.model, self.device_mesh["data_parallel"])
            self.losses = self._loss_function()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[RUN_HASH] = self.run_hash

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Lightning counts the micro-batches of one device. Their number per step depends on the
        # number of devices, which may have changed since the checkpoint was saved.
        completed = checkpoint["global_step"] * self.trainer.accumulate_grad_batches
        for counts in checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"].values():
            if isinstance(counts, dict):
                counts.update(dict.fromkeys(counts, completed))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        # Lightning's own clipping rejects fused optimizers in bf16, although bf16 needs no scaler.
        if gradient_clip_val is not None:
            norm = nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
            self.gradient_norm = norm.full_tensor() if isinstance(norm, DTensor) else norm

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = self.optimizer(self.model)
        scheduler = build_scheduler(self.schedule, optimizer, self.total_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def shard(model: Decoder, mesh: DeviceMesh) -> None:
    """Shard the weights over `mesh` with FSDP.

    The weights of a block are gathered only while that block runs. All other weights, including the
    encoding's, stay gathered for the whole forward and backward pass.
    """
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    register_fsdp_forward_method(model, "losses")


def validation_loss(
    model: Decoder, inputs: Tensor, targets: Tensor, batch_tokens: int, precision: str
) -> float:
    """Return the mean loss in nats over the scored targets of windows [n, T].

    Each forward pass processes about `batch_tokens` tokens. Raises RunError if memory runs out.
    Leaves the model in training mode.
    """
    batch_size = max(1, batch_tokens // inputs.shape[1])
    batches = list(zip(inputs.split(batch_size), targets.split(batch_size), strict=True))
    total = np.zeros(1)
    model.eval()
    with torch.no_grad(), autocast(precision, model.device):
        try:
            for index in range(rank(), len(batches) + rank(), world_size()):
                # All processes take part in gathering sharded weights, so each of them computes as
                # many batches as rank 0. Surplus batches are not counted.
                batch = batches[min(index, len(batches) - 1)]
                losses = model.losses(*(tensor.to(model.device) for tensor in batch))
                if index < len(batches):
                    total += losses.sum(dtype=torch.float64).item()
        except torch.OutOfMemoryError as error:
            remedy = RETRY_WHEN_FREE
            if batch_size > 1:
                smaller = batch_size // 2 * inputs.shape[1]
                remedy = f"set evaluation.batch_tokens={smaller} retry=true"
            raise RunError(
                f"out of memory during validation (evaluation.batch_tokens={batch_tokens});"
                f" {remedy}"
            ) from error
    model.train()
    return all_reduce_sum(total).item() / int((targets != IGNORE_INDEX).sum())
