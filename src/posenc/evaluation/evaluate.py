"""Evaluating a run's last checkpoint."""

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.data.tokenized import TokenizedData
from posenc.evaluation.measure import measure
from posenc.evaluation.rows import row
from posenc.model.build import build_model
from posenc.model.transformer import Transformer
from posenc.record.evaluation import merge_positions, merge_rows
from posenc.record.rundir import RunDirectory
from posenc.training.checkpoint import latest
from posenc.training.fit import device_of

Report = Callable[[float, float], None]


def load_model(run: RunDirectory, config: DictConfig, vocabulary: int) -> Transformer:
    """The run's model with its last intact weights; RunError when there are none."""
    checkpoint = latest(run.checkpoints)
    if checkpoint is None:
        raise RunError(f"{run.name} has no intact checkpoint; train it first")
    model = build_model(config, vocabulary)
    model.load_state_dict(checkpoint.weights(), strict=True)
    return model.to(device_of(config))


def evaluate(
    run: RunDirectory,
    config: DictConfig,
    data: TokenizedData,
    keys: list[dict[str, Any]],
    report: Report,
    stopped: Callable[[], bool],
) -> list[dict[str, Any]]:
    """Measure the rows of `keys` and add each to the record as soon as it is there.

    `report` is given the share of the work that is done and the rate in tokens per second.
    Ends early, with what it has, when `stopped` says so.
    """
    model = load_model(run, config, data.vocabulary_size)
    made: list[dict[str, Any]] = []
    lengths = sorted({key["length"] for key in keys})
    stream = data.stream(config.evaluation.split)
    for index, length in enumerate(lengths):
        if stopped():
            break
        made += _evaluate_length(
            run,
            config,
            model,
            data,
            [key for key in keys if key["length"] == length],
            lambda done, rate, index=index: report(
                (index + done / len(stream.tokens)) / len(lengths), rate
            ),
        )
    return made


def _evaluate_length(
    run: RunDirectory,
    config: DictConfig,
    model: Transformer,
    data: TokenizedData,
    keys: list[dict[str, Any]],
    report: Report,
) -> list[dict[str, Any]]:
    split, length = config.evaluation.split, keys[0]["length"]
    stream = data.stream(split)
    result = measure(
        model,
        stream,
        length,
        batch_tokens=config.evaluation.batch_tokens,
        precision=config.precision,
        after_batch=lambda done, seconds: report(done, done / seconds),
    )
    rows = [row(key, result, stream, data.name) for key in keys]
    if any(key["protocol"] == "by_position" for key in keys):
        prefix = f"{data.fingerprint}.{split}.{length}"
        merge_positions(
            run.positions_file, {f"{prefix}.sum": result.sums, f"{prefix}.count": result.counts}
        )
    merge_rows(run.evaluation_file, rows)
    return rows
