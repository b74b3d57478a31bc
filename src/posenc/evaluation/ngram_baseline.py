"""N-gram models of a run's training tokens, scored on its evaluation text."""

import errno
import logging
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.config.steps import training_steps
from posenc.data.tokenized import TokenizedData
from posenc.evaluation.kneser_ney import KneserNey
from posenc.runs.evaluation_rows import read_rows, write_rows
from posenc.runs.lock import wait_for_lock
from posenc.runs.row_types import NGRAMS
from posenc.runs.run_directory import RunDirectory

log = logging.getLogger("posenc")
CACHE_VERSION = 1
"""Increase this when a change to the models or to their rows makes cached rows invalid."""
MAX_TRAINING_TOKENS = 64_000_000
"""The largest number of training tokens for which the models are fitted.

Counting orders 1 to 5 in 49 million tokens of Python source takes 4.4 GB of memory and 103 s.
"""


def ngram_rows(config: DictConfig, data: TokenizedData, num_steps: int) -> list[dict[str, Any]]:
    """Return a row for each order from 2 to `config.ngram_order`, as in a run's `ngrams.json`.

    The models are trained on the windows of the first `num_steps` steps, each counted once, and
    predict every token of the evaluation split from those before it in the text. A row has the sum
    of the losses in nats and the number of tokens. The rows are kept in the cache directory and
    shared by runs with the same data, evaluation split, training windows and highest order. Orders
    that do not fit into a window are left out. Returns no rows if `ngram_order` is null or the
    windows have more than 64 million tokens.
    """
    if config.ngram_order is None:
        return []
    length, max_order = config.train_length, _max_order(config)
    windows = data.training_batches(length, config.seed)
    starts = windows.starts(num_steps * training_steps(config).sequences)
    if len(starts) * length > MAX_TRAINING_TOKENS:
        return []
    subset = "all" if len(starts) == windows.num_windows else f"s{config.seed}-{len(starts)}"
    data_id = f"{data.fingerprint}-{config.evaluation.split}-L{length}-{subset}"
    name = f"{data_id}-{max_order}-v{CACHE_VERSION}"
    file = Path(config.cache_dir) / "ngrams" / f"{name}.json"
    with _lock_cache(file) as is_writable:
        if not (rows := _cached_rows(file, name)):
            model = KneserNey(windows.token_rows(starts), data.vocab_size, max_order)
            rows = _score(model, data, config.evaluation.split)
            if is_writable:
                write_rows(file, rows, name)
        return rows


@contextmanager
def _lock_cache(file: Path) -> Iterator[bool]:
    """Lock a cache file if the cache can be written to, and yield whether it can."""
    with ExitStack() as stack:
        try:
            message = "waiting for another process that is counting the same n-grams"
            stack.enter_context(wait_for_lock(file.with_suffix(".lock"), lambda: log.info(message)))
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            log.warning("n-gram models are not cached: %s", error)
            yield False
            return
        yield True


def save_ngram_rows(
    run: RunDirectory, config: DictConfig, data: TokenizedData, num_steps: int
) -> None:
    """Add the rows of `ngram_rows` to a run's `ngrams.json`, unless it has them.

    A file that cannot be read is overwritten.
    """
    split, run_hash = config.evaluation.split, config.planned.hash
    try:
        saved = run.ngrams(run_hash)
    except RunError as error:
        log.warning("overwriting %s: %s", run.ngrams_file, error)
        saved = []
    others = [row for row in saved if (row["data"], row["split"]) != (data.fingerprint, split)]
    if not run.ngrams_file.exists() or len(saved) - len(others) < _max_order(config) - 1:
        rows = [*others, *ngram_rows(config, data, num_steps)]
        write_rows(run.ngrams_file, rows, run_hash)


def _max_order(config: DictConfig) -> int:
    return min(config.ngram_order or 1, config.train_length + 1)


def _cached_rows(file: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows in a cache file; none if it is missing, corrupt, edited or renamed."""
    try:
        return read_rows(file, NGRAMS, owner=name)
    except RunError as error:
        log.warning("recomputing the n-gram models: %s", error)
        return []


def _score(model: KneserNey, data: TokenizedData, split: str) -> list[dict[str, Any]]:
    text = data.token_array(split)
    tokens: NDArray[np.int64] = np.asarray(text.tokens).astype(np.int64)
    rows = []
    for order in range(2, model.max_order + 1):
        losses = model.losses(np.concatenate(([text.eos_id], tokens)), order)[1:]
        loss = float(losses.sum()) / len(losses)
        rows.append(
            {
                "order": order,
                "data": data.fingerprint,
                "split": split,
                "sum": float(losses.sum()),
                "count": len(losses),
                "loss": loss,
                "perplexity": math.exp(loss),
            }
        )
    return rows
