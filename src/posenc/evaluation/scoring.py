"""Scores windows with a model: float64 sums of the losses of the scored targets."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.attention.precision import autocast
from posenc.config.errors import RunError
from posenc.evaluation.windows import Batch, Budget, Windows
from posenc.model.transformer import Decoder
from posenc.runs.environment import rank, world_size
from posenc.training.distributed import all_reduce_sum, any_rank

log = logging.getLogger(__name__)
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Measurement:
    """Summed loss in nats (float64) and number of targets at each position in the window [T].

    `indices` are those of the scored windows. With accuracy, `hits` is the number of targets that
    the model ranks first, `solved` the number of windows in which it does so for all of them.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]
    seconds: float
    indices: Indices
    hits: int | None = None
    solved: int | None = None


@dataclass(frozen=True)
class Scores:
    """The loss in nats of each of the n scored targets of a batch, in the order of its mask.

    With accuracy, `hits` is whether the model ranks each of them first.
    """

    losses: Tensor
    hits: Tensor | None = None


def measure(
    model: Decoder,
    windows: Windows,
    *,
    batch_tokens: int,
    precision: str,
    on_batch: Callable[[int, float], bool],
    accuracy: bool = False,
    budget: Budget | None = None,
) -> Measurement | None:
    """Score every window once, about `batch_tokens` tokens at a time, within the budget.

    The windows are sharded over the processes of the run, each of which returns the whole result.
    `on_batch` is called after each batch with the tokens processed so far and the seconds they
    took; if it returns False in any process, scoring stops and None is returned. The model is left
    in evaluation mode.
    """
    budget = budget or Budget()
    order = budget.order(windows)[rank() :: world_size()]
    longest = windows.lengths.max()
    sums, counts = np.zeros(longest, dtype=np.float64), np.zeros(longest, dtype=np.int64)
    hits, solved = 0, 0
    started, tokens, completed, stopped = time.perf_counter(), 0, 0, False
    model.eval()
    with torch.no_grad(), autocast(precision, model.device):
        for batch, scores in _scored_batches(model, windows, order, batch_tokens, accuracy):
            width = batch.inputs.shape[1]
            sums[:width] += _at_positions(batch.scored, scores.losses.double()).sum(dim=0).numpy()
            counts[:width] += batch.scored.sum(dim=0).numpy()
            if scores.hits is not None:
                correct = _at_positions(batch.scored, scores.hits.double()).sum(dim=1)
                hits += int(correct.sum())
                solved += int((correct == batch.scored.sum(dim=1)).sum())
            tokens, completed = tokens + batch.inputs.numel(), completed + len(batch.inputs)
            seconds = time.perf_counter() - started
            stopped = not on_batch(tokens * world_size(), seconds)
            if stopped or budget.is_spent(seconds):
                break
    if any_rank(stopped):
        return None
    was_scored = np.zeros(len(windows.lengths), dtype=np.int64)
    was_scored[order[:completed]] = 1
    indices, seconds = np.flatnonzero(all_reduce_sum(was_scored)), time.perf_counter() - started
    result = Measurement(all_reduce_sum(sums), all_reduce_sum(counts), seconds, indices)
    if not accuracy:
        return result
    total_hits, total_solved = all_reduce_sum(np.array([hits, solved])).tolist()
    return replace(result, hits=total_hits, solved=total_solved)


def _scored_batches(
    model: Decoder, windows: Windows, order: Indices, batch_tokens: int, accuracy: bool
) -> Iterator[tuple[Batch, Scores]]:
    """Yield the windows in `order`, about `batch_tokens` tokens at a time, with their scores.

    When memory runs out, the batch is halved and all later batches are no larger. Raises RunError
    if a single window does not fit.
    """
    waiting = deque(_split(windows, order, batch_tokens))
    while waiting:
        indices = waiting.popleft()
        length = int(windows.lengths[indices[0]])
        if len(indices) > (limit := max(1, batch_tokens // length)):
            waiting.extendleft([indices[limit:], indices[:limit]])
            continue
        batch = windows.batch(indices)
        scores = _score_or_none(model, batch, accuracy)
        if scores is None:
            batch_tokens = _halved(len(indices), length)
            waiting.appendleft(indices)
            continue
        yield batch, scores


def _split(windows: Windows, order: Indices, batch_tokens: int) -> Iterator[Indices]:
    """Yield batches of consecutive windows of equal length."""
    lengths = windows.lengths[order]
    runs = np.split(order, np.flatnonzero(np.diff(lengths)) + 1) if len(order) else []
    for run in runs:
        size = max(1, batch_tokens // int(windows.lengths[run[0]]))
        for first in range(0, len(run), size):
            yield run[first : first + size]


def _score_or_none(model: Decoder, batch: Batch, accuracy: bool) -> Scores | None:
    """Return the scores of a batch; None if memory ran out, after freeing what was allocated."""
    device = model.device
    try:
        inputs, targets = batch.inputs.to(device), batch.targets.to(device)
        return score(model, Batch(inputs, targets, batch.scored.to(device)), accuracy)
    except torch.OutOfMemoryError:
        pass
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def score(model: Decoder, batch: Batch, accuracy: bool) -> Scores:
    """Return the losses of the scored targets and, with `accuracy`, which are ranked first.

    Only scored targets go through the last feed-forward layer and the head. Of equal logits the
    first counts as the highest.
    """
    if accuracy:
        hidden = model.hidden_states(batch.inputs, scored=batch.scored)
        targets = batch.targets[batch.scored]
        losses = model.head.losses(hidden[None], targets[None])[0]
        return Scores(losses, model.head(hidden).argmax(dim=-1) == targets)
    if batch.scored.all():
        return Scores(model.losses(batch.inputs, batch.targets).flatten())
    return Scores(model.losses_at(batch.inputs, batch.targets, batch.scored))


def _halved(windows: int, length: int) -> int:
    """Return half the tokens of a batch; RunError if it was a single window."""
    if windows == 1:
        raise RunError(
            f"out of memory with one window of {length} tokens; use shorter evaluation lengths,"
            f" another kernel, or a device with more memory"
        )
    half = windows // 2 * length
    log.warning(
        "out of memory with evaluation.batch_tokens=%d; continuing with %d", windows * length, half
    )
    return half


def _at_positions(scored: Tensor, values: Tensor) -> Tensor:
    """Return values [n] of the scored targets at their positions in [B, T], zero elsewhere."""
    return torch.zeros(scored.shape, dtype=values.dtype).masked_scatter(scored, values.cpu())
