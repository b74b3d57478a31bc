"""Evaluating a run's last checkpoint."""

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig

from posenc.config.errors import RunError
from posenc.config.settings import steps_of
from posenc.data.tokenized import TokenizedData
from posenc.evaluation.measure import Measurement, measure
from posenc.evaluation.rows import row
from posenc.model.build import build_model
from posenc.model.device import device_of
from posenc.model.transformer import Transformer
from posenc.record.evaluation import merge_positions, merge_rows
from posenc.record.rundir import RunDirectory
from posenc.training.checkpoint import latest

Report = Callable[[float, float], bool]


def load_model(run: RunDirectory, config: DictConfig, vocabulary: int) -> Transformer:
    """The run's model with its final weights; RunError while it has none that are intact."""
    checkpoint = latest(run.checkpoints)
    reached, total = checkpoint.step if checkpoint else 0, steps_of(config).total
    if checkpoint is None or reached < total:
        raise RunError(
            f"{run.name} has an intact checkpoint of step {reached} of {total}; train it to its end"
            f" first, with the command that `posenc status name={run.path.parent.name}` prints"
        )
    model = build_model(config, vocabulary)
    model.load_state_dict(checkpoint.weights(), strict=True)
    return model.to(device_of(config))


def evaluate(
    run: RunDirectory,
    config: DictConfig,
    data: TokenizedData,
    keys: list[dict[str, Any]],
    go_on: Report,
) -> list[dict[str, Any]]:
    """Measure the rows of `keys` and add each to the record as soon as it is there.

    `go_on` is told the share of the work that is done and the rate in tokens per second; where it
    says False, the evaluation ends with the lengths that are whole by then.
    """
    model = load_model(run, config, data.vocabulary_size)
    tokens = len(data.stream(config.evaluation.split).tokens)
    made: list[dict[str, Any]] = []
    lengths = sorted({key["length"] for key in keys})
    for index, length in enumerate(lengths):

        def after_batch(done: int, seconds: float, index: int = index) -> bool:
            return go_on((index + done / tokens) / len(lengths), done / seconds)

        result = measure(
            model,
            data.stream(config.evaluation.split),
            length,
            batch_tokens=config.evaluation.batch_tokens,
            precision=config.precision,
            after_batch=after_batch,
        )
        if result is None:
            break
        made += _record(run, data, [key for key in keys if key["length"] == length], result)
    return made


def _record(
    run: RunDirectory, data: TokenizedData, keys: list[dict[str, Any]], result: Measurement
) -> list[dict[str, Any]]:
    """Write one length's rows and positions."""
    split, length = keys[0]["split"], keys[0]["length"]
    if any(key["protocol"] == "by_position" for key in keys):
        prefix = f"{data.fingerprint}.{split}.{length}"
        merge_positions(
            run.positions_file, {f"{prefix}.sum": result.sums, f"{prefix}.count": result.counts}
        )
    rows = [row(key, result, data.stream(split), data.name) for key in keys]
    merge_rows(run.evaluation_file, rows)
    return rows
