"""A model measured on windows: exact sums over the targets that are scored."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from posenc.attention.precision import autocast
from posenc.evaluation.batches import scored_batches
from posenc.evaluation.budget import Budget
from posenc.evaluation.score import Score, losses
from posenc.evaluation.windows import Windows
from posenc.model.decoder import Decoder
from posenc.runs.environment import rank, world_size
from posenc.training.distributed import any_of, summed


@dataclass(frozen=True)
class Measurement:
    """Summed loss in nats (float64) and number of targets for each position in the window [T].

    `numbers` are the windows that were measured; `hits` the targets that the model ranks first
    and `solved` the windows of which all are, where the protocol asks for them.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]
    seconds: float
    numbers: NDArray[np.int64]
    hits: int | None = None
    solved: int | None = None


def measure(
    model: Decoder,
    windows: Windows,
    *,
    batch_tokens: int,
    precision: str,
    after_batch: Callable[[int, float], bool],
    score: Score = losses,
    budget: Budget | None = None,
) -> Measurement | None:
    """Score the windows, each once, about `batch_tokens` tokens through the model at once.

    The processes of a group share the windows out, and each has the whole result. A budget ends
    it with the windows that are whole by then. `after_batch` is told how many tokens have gone
    through the model, in how many seconds; where it says False, nothing is measured. The model is
    put into evaluation mode.
    """
    budget = budget or Budget()
    order, device = budget.order(windows)[rank() :: world_size()], model.device
    sums, counts = np.zeros(windows.lengths.max()), np.zeros(windows.lengths.max(), dtype=np.int64)
    hits, solved = [], []
    started, tokens, measured, stopped = time.perf_counter(), 0, 0, False
    model.eval()
    with torch.no_grad(), autocast(precision, device):
        for batch, numbers, scores in scored_batches(model, windows, order, batch_tokens, score):
            width = batch.inputs.shape[1]
            sums[:width] += _placed(batch.scored, scores.losses.double()).sum(dim=0).numpy()
            counts[:width] += batch.scored.sum(dim=0).numpy()
            if scores.hits is not None:
                right = _placed(batch.scored, scores.hits.double()).sum(dim=1)
                hits.append(int(right.sum()))
                solved.append(int((right == batch.scored.sum(dim=1)).sum()))
            tokens, measured = tokens + batch.inputs.numel(), measured + len(numbers)
            seconds = time.perf_counter() - started
            stopped = not after_batch(tokens * world_size(), seconds)
            if stopped or budget.spent(seconds):
                break
    if any_of(stopped):
        return None
    done = np.zeros(len(windows.lengths), dtype=np.int64)
    done[order[:measured]] = 1
    numbers, seconds = np.flatnonzero(summed(done)), time.perf_counter() - started
    ranked = [_total(hits), _total(solved)]
    return Measurement(summed(sums), summed(counts), seconds, numbers, *ranked)


def _total(counts: list[int]) -> int | None:
    """Of all processes; None where no batch of any has such a count."""
    asked, total = any_of(bool(counts)), int(summed(np.array([sum(counts)]))[0])
    return total if asked else None


def _placed(scored: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values [n] of the scored targets at their places [B, T], zero elsewhere."""
    return torch.zeros(scored.shape, dtype=values.dtype).masked_scatter(scored, values.cpu())
