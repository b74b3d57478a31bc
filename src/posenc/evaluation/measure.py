"""The nonoverlapping protocol: the stream cut into blocks, every token of it scored once."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from posenc.data.tokenized import TokenStream
from posenc.data.windows import block
from posenc.model.decoder import Decoder
from posenc.model.precision import autocast


@dataclass(frozen=True)
class Measurement:
    """Summed loss in nats (float64) and number of tokens for each position in the window [T]."""

    sums: np.ndarray
    counts: np.ndarray
    seconds: float


def measure(
    model: Decoder,
    stream: TokenStream,
    length: int,
    *,
    batch_tokens: int,
    precision: str,
    after_batch: Callable[[int, float], bool],
) -> Measurement | None:
    """Score every token of `stream` in blocks of `length`, the short tail included.

    About `batch_tokens` tokens go through the model at once. `after_batch` is told how many
    tokens are done, in how many seconds; where it says False, nothing is measured. The model is
    put into evaluation mode.
    """
    device = model.device
    sums, counts = np.zeros(length), np.zeros(length, dtype=np.int64)
    started, done = time.perf_counter(), 0
    model.eval()
    with torch.no_grad(), autocast(precision, device):
        for inputs, targets in _blocks(stream, length, batch_tokens):
            losses = model.losses(inputs.to(device), targets.to(device))
            width = targets.shape[1]
            sums[:width] += losses.sum(dim=0, dtype=torch.float64).cpu().numpy()
            counts[:width] += targets.shape[0]
            done += targets.numel()
            if not after_batch(done, time.perf_counter() - started):
                return None
    return Measurement(sums, counts, time.perf_counter() - started)


def _blocks(
    stream: TokenStream, length: int, batch_tokens: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and targets [n, length], as many blocks as the budget allows; the tail [1, rest]."""
    total = len(stream.tokens)
    whole, size = total // length, max(1, batch_tokens // length)
    for first in range(0, whole, size):
        count = min(size, whole - first)
        inputs, targets = block(stream, first * length, (first + count) * length)
        yield inputs.view(count, length), targets.view(count, length)
    if total % length:
        inputs, targets = block(stream, whole * length, total)
        yield inputs[None], targets[None]
