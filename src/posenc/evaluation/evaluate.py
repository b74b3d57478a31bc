"""Evaluation of a run's last checkpoint, whose rows are added to its `evaluation.json`."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.config.steps import training_steps
from posenc.config.swaps import evaluation_swaps
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.protocols import PROTOCOLS
from posenc.evaluation.requests import Request, measurement_requests
from posenc.evaluation.scoring import Measurement, measure
from posenc.evaluation.swap import swap_encoding
from posenc.evaluation.windows import Budget, Windows
from posenc.model.build import build_model
from posenc.model.transformer import Decoder
from posenc.runs.environment import peak_megabytes, rank
from posenc.runs.evaluation_rows import merge_positions, merge_rows, positions_name
from posenc.runs.run_directory import RunDirectory
from posenc.training.checkpoint import latest_checkpoint
from posenc.training.distributed import broadcast_from_rank0


def evaluate(
    run: RunDirectory,
    config: DictConfig,
    data: Dataset,
    keys: list[dict[str, Any]],
    device: torch.device,
    on_progress: Callable[[float, float], bool],
) -> list[dict[str, Any]]:
    """Measure the rows of `keys`, save each in the run's files once complete, and return them.

    `on_progress` is called with the fraction of the work that is done and the rate in tokens per
    second; if it returns False, the evaluation stops, and the rows complete by then are returned.
    """
    model = load_model(run, config, data.vocab_size, device)
    trained_encoding = model.encoding
    requests = measurement_requests(config, data, keys)
    work = sum(request.tokens for request in requests)
    rows: list[dict[str, Any]] = []
    done = 0
    for request in requests:

        def on_batch(tokens: int, seconds: float, done: int = done) -> bool:
            return on_progress((done + tokens) / work, tokens / seconds)

        model.encoding = _encoding(trained_encoding, config, request).to(device)
        result = measure(
            model,
            request.windows,
            batch_tokens=config.evaluation.batch_tokens,
            precision=config.precision,
            on_batch=on_batch,
            accuracy=request.protocol.accuracy,
            budget=Budget.from_config(config),
        )
        if result is None:
            break
        rows += _record(run, data, request, result)
        done += request.tokens
    return rows


def load_model(
    run: RunDirectory, config: DictConfig, vocab_size: int, device: torch.device
) -> Decoder:
    """Return the run's model with its final weights; RunError if there is no intact checkpoint."""
    checkpoint = broadcast_from_rank0(lambda: latest_checkpoint(run.checkpoints))
    step, total = checkpoint.step if checkpoint else 0, training_steps(config).total
    if checkpoint is None or step < total:
        raise RunError(
            f"{run.name} has an intact checkpoint of step {step} of {total}; finish its training"
            f" first, with the command that `posenc status name={run.path.parent.name}` prints"
        )
    model, weights = build_model(config, vocab_size), checkpoint.weights()
    try:
        model.load_state_dict(weights, strict=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise checkpoint.load_error(error) from error
    return model.to(device)


def evaluation_row(
    key: dict[str, Any], result: Measurement, windows: Windows, data_name: str
) -> dict[str, Any]:
    """Return a row of `evaluation.json`: the summed loss, the count, and the means of these.

    `full_count` is the number of targets that the protocol scores without a budget, `coverage` the
    fraction of the split's tokens that were scored. Perplexities per word and byte are None unless
    every token of the split was scored.
    """
    total, count = float(result.sums.sum()), int(result.counts.sum())
    text, full_count = windows.text, int(windows.scored.sum())
    whole = text if text is not None and count == len(text.tokens) else None
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
        "words": whole and whole.words,
        "bytes": whole and whole.bytes,
        "perplexity_per_word": whole and _exp(total / max(1, whole.words)),
        "perplexity_per_byte": whole and _exp(total / max(1, whole.bytes)),
        **_accuracies(result, count),
        "seconds": round(result.seconds, 3),
        "tokens_per_second": round(count / result.seconds, 1),
        "peak_memory_mb": round(peak_megabytes(), 1),
    }


def _encoding(trained: Encoding, config: DictConfig, request: Request) -> Encoding:
    """Return the trained encoding, with the request's swap if it has one."""
    swap = evaluation_swaps(config)[request.swap]
    if request.swap is None or swap is None:
        return trained
    return swap_encoding(trained, config, request.swap, swap, request.length)


def _record(
    run: RunDirectory, data: Dataset, request: Request, result: Measurement
) -> list[dict[str, Any]]:
    """Write the rows of one measurement and its losses by position; RunError for NaN."""
    if not np.isfinite(result.sums).all():
        raise RunError(
            f"the loss is not a number in windows of {request.length} tokens"
            f"{f' under evaluation/swap={request.swap}' if request.swap else ''}; rows"
            f" measured before are kept"
        )
    rows = [evaluation_row(key, result, request.windows, data.name) for key in request.keys]
    if rank() > 0:
        return rows
    for key in request.keys:
        if PROTOCOLS[key["protocol"]].positions:
            name = positions_name(key)
            arrays = {f"{name}.sum": result.sums, f"{name}.count": result.counts}
            merge_positions(run.positions_file, arrays)
    merge_rows(run.evaluation_file, rows)
    return rows


def _accuracies(result: Measurement, count: int) -> dict[str, float]:
    """Return the fraction of targets ranked first, and of windows with all of them, if counted."""
    if result.hits is None or result.solved is None:
        return {}
    return {"accuracy": result.hits / count, "exact": result.solved / len(result.indices)}


def _exp(loss: float) -> float | None:
    """Return None where a float would overflow, as for a text with hardly any white space."""
    return math.exp(loss) if loss < 700 else None
