"""The validation loss along the way."""

import numpy as np
import torch
from torch import Tensor

from posenc.attention.precision import autocast
from posenc.config.errors import RunError
from posenc.data.dataset import IGNORED
from posenc.model.decoder import Decoder
from posenc.runs.environment import rank
from posenc.training.distributed import shares, summed


def validation_loss(
    model: Decoder, inputs: Tensor, targets: Tensor, batch_tokens: int, precision: str
) -> float:
    """Mean loss in nats over the scored targets of windows [n, T], `batch_tokens` at a time.

    Leaves the model in training mode. RunError where that many do not fit into memory.
    """
    size = max(1, batch_tokens // inputs.shape[1])
    device = model.device
    model.eval()
    total = np.zeros(1)
    with torch.no_grad(), autocast(precision, device):
        try:
            for some in shares(zip(inputs.split(size), targets.split(size), strict=True)):
                # Sharded weights are gathered together: one without a batch reads another's too.
                rows = some[min(rank(), len(some) - 1)]
                losses = model.losses(*(of.to(device) for of in rows))
                if rank() < len(some):
                    total += losses.sum(dtype=torch.float64).item()
        except torch.OutOfMemoryError as error:
            raise RunError(
                f"out of memory in validation with evaluation.batch_tokens={batch_tokens}; give"
                f" evaluation.batch_tokens={max(1, size // 2) * inputs.shape[1]} retry=true"
            ) from error
    model.train()
    return summed(total).item() / int((targets != IGNORED).sum())
