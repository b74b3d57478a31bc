"""Scores windows with a model, batch by batch; batches become smaller after memory runs out."""

import logging
from collections import deque
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.config.errors import RunError
from posenc.evaluation.windows import Batch, Windows
from posenc.model.transformer import Decoder

log = logging.getLogger(__name__)
Indices = NDArray[np.int64]

Scores = tuple[Tensor, Tensor | None]
"""The losses [n] in nats of the n scored targets of a batch, in the order of its mask, and, if
accuracy was requested, a mask [n] of the targets that the model ranks first."""


def scored_batches(
    model: Decoder, windows: Windows, order: Indices, batch_tokens: int, accuracy: bool
) -> Iterator[tuple[Batch, Scores]]:
    """Yield the windows in `order` with their scores; use smaller batches after memory runs out."""
    boundaries = np.flatnonzero(np.diff(windows.lengths[order])) + 1
    equal_lengths = np.split(order, boundaries)
    pending = deque(group for group in equal_lengths if len(group))
    while pending:
        indices = pending.popleft()
        length = int(windows.lengths[indices[0]])
        limit = max(1, batch_tokens // length)
        indices, later = indices[:limit], indices[limit:]
        if len(later):
            pending.appendleft(later)
        batch = windows.batch(indices)
        scores = _score_or_none(model, batch, accuracy)
        if scores is not None:
            yield batch, scores
            continue
        if len(indices) == 1:
            raise RunError(
                f"out of memory with one window of {length} tokens; use shorter evaluation lengths,"
                f" another kernel, or a device with more memory"
            )
        too_many, batch_tokens = len(indices) * length, len(indices) // 2 * length
        log.warning(
            "out of memory with a batch of %d tokens; continuing with %d",
            too_many,
            batch_tokens,
        )
        pending.appendleft(indices)


def _score_or_none(model: Decoder, batch: Batch, accuracy: bool) -> Scores | None:
    """Return the scores of a batch; if memory runs out, empty the CUDA cache and return None."""
    device = model.device
    try:
        inputs, targets = batch.inputs.to(device), batch.targets.to(device)
        on_device = Batch(inputs, targets, batch.scored.to(device), batch.starts)
        return score(model, on_device, accuracy)
    except torch.OutOfMemoryError:
        pass
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def score(model: Decoder, batch: Batch, accuracy: bool) -> Scores:
    """Return the losses of the scored targets and, with `accuracy`, which of them are ranked first.

    Only scored positions go through the last feed-forward layer and the head. Among equal logits,
    the token with the lowest id ranks first.
    """
    if batch.scored.all() and not accuracy:
        return model.losses(batch.inputs, batch.targets).flatten(), None
    hidden = model.hidden_states(batch.inputs, scored=batch.scored)
    targets = batch.targets[batch.scored]
    losses = model.head.losses(hidden[None], targets[None])[0]
    return losses, model.head(hidden).argmax(dim=-1) == targets if accuracy else None
