"""Sums the losses of the scored targets in float64, and saves the sums as evaluation rows.

Windows are scored in batches, whose size is halved when GPU memory runs out.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.config.errors import RunError
from posenc.data.dataset import Dataset
from posenc.evaluation.protocols import PROTOCOLS
from posenc.evaluation.requests import Request
from posenc.evaluation.windows import Batch, Budget, Windows
from posenc.model.device import autocast
from posenc.model.transformer import Decoder
from posenc.runs.environment import peak_megabytes, rank, reset_peak_memory, world_size
from posenc.runs.evaluation_rows import (
    check_same_tokens,
    merge_rows,
    row_key,
    rows_with_most_tokens,
)
from posenc.runs.loss_arrays import (
    BLOCK_TOKENS,
    BlockSums,
    block_arrays,
    merge_arrays,
    position_array_name,
)
from posenc.runs.run_directory import RunDirectory
from posenc.training.distributed import all_reduce_sum

log = logging.getLogger(__name__)
Indices = NDArray[np.int64]

Scores = tuple[Tensor, Tensor | None]
"""The losses [n] in nats of the n scored targets of a batch, in the order of its mask, and, if
accuracy was requested, a mask [n] of the targets that are the top-1 prediction."""


def scored_batches(
    model: Decoder, windows: Windows, order: Indices, batch_tokens: int, accuracy: bool
) -> Iterator[tuple[Batch, Scores]]:
    """Yield windows in `order` with their scores; halve the batch size if GPU memory runs out."""
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
                f"out of memory with one window of {length} tokens; use shorter evaluation lengths"
                f" or a device with more memory"
            )
        failed_tokens, batch_tokens = len(indices) * length, len(indices) // 2 * length
        log.warning(
            "out of memory with a batch of %d tokens; continuing with %d",
            failed_tokens,
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
    """Return the losses of the scored targets and, with `accuracy`, which are top-1 predictions.

    Only scored positions go through the last feed-forward layer and the head. Ties are broken
    in favor of the lowest token id.
    """
    if batch.scored.all() and not accuracy:
        return model.losses(batch.inputs, batch.targets).flatten(), None
    hidden = model.hidden_states(batch.inputs, scored=batch.scored)
    targets = batch.targets[batch.scored]
    losses = model.head.losses(hidden[None], targets[None])[0]
    return losses, model.head(hidden).argmax(dim=-1) == targets if accuracy else None


@dataclass(frozen=True)
class Measurement:
    """The result of scoring the windows whose indices are `indices`.

    `sums` [T] are the summed losses in nats and `counts` [T] the numbers of scored targets at each
    position in the window. If accuracy was requested, `num_correct` is the number of correct
    top-1 predictions, and `num_exact` the number of windows in which all predictions are correct.
    `blocks` has the sums and counts for each block of the text; None for a task.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.int64]
    seconds: float
    indices: Indices
    num_correct: int | None = None
    num_exact: int | None = None
    blocks: BlockSums | None = None


def measure(
    model: Decoder,
    windows: Windows,
    *,
    batch_tokens: int,
    precision: str,
    on_batch: Callable[[int, float], bool],
    budget: Budget,
) -> Measurement | None:
    """Score as many windows as the budget allows, in batches of at most `batch_tokens` tokens.

    A longer window is a batch of its own. Windows are sharded across processes; each returns the
    full result. After each batch, `on_batch` receives the number of tokens so far and the elapsed
    seconds; if it returns False, `measure` returns None. The model is left in eval mode.
    """
    order = budget.order(windows)[rank() :: world_size()]
    sums, counts = (np.zeros(windows.lengths.max(), dtype) for dtype in (np.float64, np.int64))
    blocks, accuracy = _empty_blocks(windows), windows.text is None  # accuracy: for tasks only
    correct = np.zeros(2, dtype=np.int64)  # correct targets, and windows without an error
    tokens, completed, stopped, start_time = 0, 0, False, time.perf_counter()
    model.eval()
    reset_peak_memory()
    with torch.no_grad(), autocast(precision, model.device):
        batches = scored_batches(model, windows, order, batch_tokens, accuracy)
        for batch, (losses, is_correct) in batches:
            length = batch.inputs.shape[1]
            sums[:length] += _at_positions(batch.scored, losses.double()).sum(dim=0).numpy()
            counts[:length] += batch.scored.sum(dim=0).numpy()
            if is_correct is None:
                _add_to_blocks(blocks, batch, losses.double())
            else:
                per_window = _at_positions(batch.scored, is_correct.double()).sum(dim=1)
                num_exact = (per_window == batch.scored.sum(dim=1)).sum()
                correct += (int(per_window.sum()), int(num_exact))
            tokens, completed = tokens + batch.inputs.numel(), completed + len(batch.inputs)
            seconds = time.perf_counter() - start_time
            stopped = not on_batch(tokens * world_size(), seconds)
            if stopped or budget.is_spent(seconds):
                break
    if all_reduce_sum(np.array([int(stopped)])).any():  # in any process
        return None
    was_scored = np.zeros(len(windows.lengths), dtype=np.int64)
    was_scored[order[:completed]] = 1
    indices, seconds = np.flatnonzero(all_reduce_sum(was_scored)), time.perf_counter() - start_time
    sums, counts = all_reduce_sum(sums), all_reduce_sum(counts)
    totals = all_reduce_sum(correct).tolist() if accuracy else (None, None)
    blocks = BlockSums(all_reduce_sum(blocks.sums), all_reduce_sum(blocks.counts))
    return Measurement(sums, counts, seconds, indices, *totals, blocks=None if accuracy else blocks)


def _empty_blocks(windows: Windows) -> BlockSums:
    """Return zeros for each block of the text of the windows; for a task, there are no blocks."""
    num_blocks = 0 if windows.text is None else -(-len(windows.text.tokens) // BLOCK_TOKENS)
    return BlockSums(np.zeros(num_blocks), np.zeros(num_blocks, dtype=np.int64))


def _add_to_blocks(totals: BlockSums, batch: Batch, losses: Tensor) -> None:
    """Add the losses [n] of the n scored targets of a batch, in the order of its mask."""
    positions = batch.starts[:, None] + np.arange(batch.inputs.shape[1])
    blocks = positions[batch.scored.numpy()] // BLOCK_TOKENS
    sums, counts = totals
    sums += np.bincount(blocks, weights=losses.cpu().numpy(), minlength=len(sums))
    counts += np.bincount(blocks, minlength=len(counts))


def _at_positions(scored: Tensor, values: Tensor) -> Tensor:
    """Return the values [n] of the scored targets at their positions in [B, T], 0 elsewhere."""
    return torch.zeros(scored.shape, dtype=values.dtype).masked_scatter(scored, values.cpu())


def evaluation_row(
    key: dict[str, Any], result: Measurement, windows: Windows, data_name: str
) -> dict[str, Any]:
    """Return a row of `evaluation.json`: the summed loss, the number of targets and derived values.

    `full_count` is the number of targets that the protocol scores without a budget. `coverage` is
    the fraction of the split's tokens that were scored or, for a task, of its answer tokens.
    Perplexities per word and per byte are None unless every token of the split was scored.
    """
    total, count = float(result.sums.sum()), int(result.counts.sum())
    text, full_count = windows.text, int(windows.num_scored.sum())
    scored_text = text if text is not None and count == len(text.tokens) else None
    return {
        **key,
        "data_name": data_name,
        "sum": total,
        "count": count,
        "full_count": full_count,
        "coverage": count / (full_count if text is None else len(text.tokens)),
        "tokens_hash": windows.digest(result.indices),
        "loss": total / count,
        "perplexity": _exp(total / count),
        "words": scored_text and scored_text.words,
        "bytes": scored_text and scored_text.bytes,
        "perplexity_per_word": scored_text and _exp(total / max(1, scored_text.words)),
        "perplexity_per_byte": scored_text and _exp(total / max(1, scored_text.bytes)),
        **_accuracies(result, count),
        "seconds": round(result.seconds, 3),
        "tokens_per_second": round(count / result.seconds, 1),
        "peak_memory_mb": round(peak_megabytes(), 1),
    }


def save_rows(
    run: RunDirectory, run_hash: str, data: Dataset, request: Request, result: Measurement
) -> list[dict[str, Any]]:
    """Save the rows of a measurement and its losses by position and by block; return the rows.

    For each measurement, the two npz files keep only the losses of the row that scored the most
    tokens, regardless of its budget. Raises RunError if a loss is not finite.
    """
    if not np.isfinite(result.sums).all():
        raise RunError(
            f"the loss is NaN or infinite in windows of {request.length} tokens"
            f"{f' with evaluation/swap={request.swap}' if request.swap else ''}, because training"
            " diverged or the encoding overflows at this length; rows that are already complete are"
            " kept, so you can rerun the command without this length"
        )
    rows = [evaluation_row(key, result, request.windows, data.name) for key in request.keys]
    if rank() > 0:
        return rows
    new_rows, saved_rows = {row_key(row): row for row in rows}, run.rows(run_hash)
    for old in saved_rows:
        check_same_tokens(run.evaluation_file, old, new_rows.get(row_key(old)))
    others = [row for row in saved_rows if row_key(row) not in new_rows]
    largest = rows_with_most_tokens([*others, *rows])
    blocks: dict[str, np.ndarray] = {}
    # The arrays of a row are not saved if a saved row of the same measurement scored more tokens.
    for row in [row for row in rows if row in largest]:
        if PROTOCOLS[row["protocol"]].save_position_losses:
            name = position_array_name(row)
            arrays = {f"{name}.sum": result.sums, f"{name}.count": result.counts}
            merge_arrays(run.positions_file, arrays)
        if result.blocks is not None:
            blocks |= block_arrays(row, result.blocks)
    if blocks:
        merge_arrays(run.blocks_file, blocks)
    merge_rows(run.evaluation_file, rows, run_hash)
    return rows


def _accuracies(result: Measurement, count: int) -> dict[str, float]:
    """Return the fractions of correct targets and of fully correct windows, if counted."""
    if result.num_correct is None or result.num_exact is None:
        return {}
    return {"accuracy": result.num_correct / count, "exact": result.num_exact / len(result.indices)}


def _exp(loss: float) -> float | None:
    """Return exp(loss), or None on overflow (possible per word if the text has few spaces)."""
    return math.exp(loss) if loss < 700 else None
