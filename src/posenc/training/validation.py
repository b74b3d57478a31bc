"""The validation loss along the way."""

import torch
from torch import Tensor

from posenc.config.errors import RunError
from posenc.data.dataset import IGNORED
from posenc.model.decoder import Decoder
from posenc.model.precision import autocast


def validation_loss(
    model: Decoder, inputs: Tensor, targets: Tensor, batch_tokens: int, precision: str
) -> float:
    """Mean loss in nats over the scored targets of windows [n, T], `batch_tokens` at a time.

    Leaves the model in training mode. RunError where that many do not fit into memory.
    """
    size = max(1, batch_tokens // inputs.shape[1])
    device = model.device
    model.eval()
    total = 0.0
    with torch.no_grad(), autocast(precision, device):
        try:
            for some in zip(inputs.split(size), targets.split(size), strict=True):
                losses = model.losses(*(rows.to(device) for rows in some))
                total += losses.sum(dtype=torch.float64).item()
        except torch.OutOfMemoryError as error:
            raise RunError(
                f"out of memory in validation with evaluation.batch_tokens={batch_tokens}; give"
                f" evaluation.batch_tokens={max(1, size // 2) * inputs.shape[1]} retry=true"
            ) from error
    model.train()
    return total / int((targets != IGNORED).sum())
