"""Windows through the model in batches as large as memory allows."""

import logging
from collections import deque
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from posenc.config.errors import RunError
from posenc.evaluation.score import Score, Scores
from posenc.evaluation.windows import Batch, Windows
from posenc.model.decoder import Decoder

log = logging.getLogger(__name__)
Numbers = NDArray[np.int64]


def scored_batches(
    model: Decoder, windows: Windows, order: Numbers, batch_tokens: int, score: Score
) -> Iterator[tuple[Batch, Numbers, Scores]]:
    """The windows in `order`, about `batch_tokens` tokens at a time, their numbers and scores.

    Out of memory, a batch is halved, and all that follow are no larger. RunError where one window
    alone does not fit.
    """
    waiting = deque(_batches(windows, order, batch_tokens))
    largest = batch_tokens
    while waiting:
        numbers = waiting.popleft()
        length = int(windows.lengths[numbers[0]])
        if len(numbers) > (most := max(1, largest // length)):
            waiting.extendleft([numbers[most:], numbers[:most]])
            continue
        batch = windows.batch(numbers)
        scores = _scores(model, batch, score)
        if scores is None:
            largest = _halved(len(numbers), length)
            waiting.appendleft(numbers)
            continue
        yield batch, numbers, scores


def _batches(windows: Windows, order: Numbers, batch_tokens: int) -> Iterator[Numbers]:
    """The windows in `order`, those next to each other of one length together."""
    lengths = windows.lengths[order]
    runs = np.split(order, np.flatnonzero(np.diff(lengths)) + 1) if len(order) else []
    for run in runs:
        size = max(1, batch_tokens // int(windows.lengths[run[0]]))
        for first in range(0, len(run), size):
            yield run[first : first + size]


def _scores(model: Decoder, batch: Batch, score: Score) -> Scores | None:
    """None where memory does not suffice; what was allocated is free again by then."""
    device = model.device
    try:
        inputs, targets = batch.inputs.to(device), batch.targets.to(device)
        return score(model, Batch(inputs, targets, batch.scored.to(device)))
    except torch.OutOfMemoryError:
        pass
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _halved(windows: int, length: int) -> int:
    """Half of a batch's tokens; RunError where it was a single window."""
    if windows == 1:
        raise RunError(
            f"out of memory with one window of {length} tokens; give shorter evaluation lengths,"
            f" another kernel, or a device with more memory"
        )
    half = windows // 2 * length
    log.warning(
        "out of memory with evaluation.batch_tokens=%d; going on with %d", windows * length, half
    )
    return half
