"""Evaluating a run's last checkpoint."""

from collections.abc import Callable
from typing import Any

import numpy as np
from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.config.settings import steps_of
from posenc.config.swaps import swaps_of
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.budget import Budget
from posenc.evaluation.measure import Measurement, measure
from posenc.evaluation.protocols import PROTOCOLS
from posenc.evaluation.request import Request, requests
from posenc.evaluation.rows import row
from posenc.evaluation.swap import exchange
from posenc.model.build import build_model
from posenc.model.decoder import Decoder
from posenc.model.device import device_of
from posenc.runs.environment import rank
from posenc.runs.evaluation_rows import merge_positions, merge_rows, positions_name
from posenc.runs.run_directory import RunDirectory
from posenc.training.checkpoint import latest
from posenc.training.distributed import settled

Report = Callable[[float, float], bool]


def load_model(run: RunDirectory, config: DictConfig, vocabulary: int) -> Decoder:
    """The run's model with its final weights; RunError while it has none that are intact."""
    checkpoint = settled(lambda: latest(run.checkpoints))
    reached, total = checkpoint.step if checkpoint else 0, steps_of(config).total
    if checkpoint is None or reached < total:
        raise RunError(
            f"{run.name} has an intact checkpoint of step {reached} of {total}; train it to its end"
            f" first, with the command that `posenc status name={run.path.parent.name}` prints"
        )
    model, weights = build_model(config, vocabulary), checkpoint.weights()
    try:
        model.load_state_dict(weights, strict=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise checkpoint.refusal(error) from error
    return model.to(device_of(config))


def evaluate(
    run: RunDirectory,
    config: DictConfig,
    data: Dataset,
    keys: list[dict[str, Any]],
    go_on: Report,
) -> list[dict[str, Any]]:
    """Measure the rows of `keys` and add each to the record as soon as it is there.

    `go_on` is told the share of the work that is done and the rate in tokens per second; where it
    says False, the evaluation ends with the measurements that are whole by then.
    """
    model = load_model(run, config, data.vocab_size)
    own = model.encoding
    asked = requests(config, data, keys)
    work = sum(request.tokens for request in asked)
    made: list[dict[str, Any]] = []
    done = 0
    for request in asked:

        def after_batch(tokens: int, seconds: float, before: int = done) -> bool:
            return go_on((before + tokens) / work, tokens / seconds)

        model.encoding = _encoding(own, config, request)
        result = measure(
            model,
            request.windows,
            batch_tokens=config.evaluation.batch_tokens,
            precision=config.precision,
            after_batch=after_batch,
            score=request.protocol.score,
            budget=Budget.of(config),
        )
        if result is None:
            break
        made += _record(run, data, request, result)
        done += request.tokens
    return made


def _encoding(own: Encoding, config: DictConfig, request: Request) -> Encoding:
    """The run's own encoding, or what the request's swap makes of it."""
    swap = swaps_of(config)[request.swap]
    if request.swap is None or swap is None:
        return own
    return exchange(own, config, request.swap, swap, request.length).to(device_of(config))


def _record(
    run: RunDirectory, data: Dataset, request: Request, result: Measurement
) -> list[dict[str, Any]]:
    """Write the rows of one measurement, and its positions; RunError for a loss that is none."""
    if not np.isfinite(result.sums).all():
        raise RunError(
            f"the loss is not a number in windows of {request.length} tokens"
            f"{f' under evaluation/swap={request.swap}' if request.swap else ''}; rows that were"
            f" measured before are kept"
        )
    rows = [row(key, result, request.windows, data.name) for key in request.keys]
    if rank() > 0:
        return rows
    for key in request.keys:
        if PROTOCOLS[key["protocol"]].positions:
            name = positions_name(key)
            arrays = {f"{name}.sum": result.sums, f"{name}.count": result.counts}
            merge_positions(run.positions_file, arrays)
    merge_rows(run.evaluation_file, rows)
    return rows
