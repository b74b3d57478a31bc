"""The validation loss along the way."""

import numpy as np
import torch

from posenc.data.tokenized import TokenStream
from posenc.data.windows import block
from posenc.model.decoder import Decoder
from posenc.model.precision import autocast


def validation_loss(
    model: Decoder,
    stream: TokenStream,
    length: int,
    tokens: int,
    batch_tokens: int,
    precision: str,
) -> float:
    """Mean loss in nats over whole windows spread evenly over `stream`, about `tokens` in all.

    Leaves the model in training mode.
    """
    whole = len(stream.tokens) // length
    numbers = np.unique(np.linspace(0, whole - 1, max(1, tokens // length)).astype(int))
    size = max(1, batch_tokens // length)
    device = model.device
    model.eval()
    total = 0.0
    with torch.no_grad(), autocast(precision, device):
        for first in range(0, len(numbers), size):
            some = numbers[first : first + size].tolist()
            blocks = [block(stream, n * length, (n + 1) * length) for n in some]
            inputs, targets = (torch.stack(rows).to(device) for rows in zip(*blocks, strict=True))
            total += model.losses(inputs, targets).sum(dtype=torch.float64).item()
    model.train()
    return total / (len(numbers) * length)
