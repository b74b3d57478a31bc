"""Evaluates a run's weights; `scoring.py` measures the rows and adds them to evaluation.json."""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch
from omegaconf import DictConfig

from posenc.attention import UnsupportedKernelError
from posenc.config.errors import RunError
from posenc.config.paths import experiment_command
from posenc.config.steps import evaluated_steps, training_steps
from posenc.config.swaps import evaluation_swaps
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.requests import Request, measurement_requests
from posenc.evaluation.scoring import measure, save_rows
from posenc.evaluation.swap import swap_encoding
from posenc.evaluation.windows import Budget
from posenc.model.build import build_encoding, build_meta_model, build_model, check_kernel
from posenc.model.device import deterministic_numerics
from posenc.model.transformer import Decoder, restored_random_state
from posenc.runs.run_directory import RunDirectory
from posenc.training.checkpoint import (
    Checkpoint,
    find_weights,
    latest_checkpoint,
    list_checkpoints,
)
from posenc.training.distributed import broadcast_from_rank0

log = logging.getLogger(__name__)


def evaluate(
    run: RunDirectory,
    config: DictConfig,
    data: Dataset,
    keys: list[dict[str, Any]],
    device: torch.device,
    on_progress: Callable[[float, float], bool],
    kernel: str | None = None,
) -> list[dict[str, Any]]:
    """Compute the evaluation rows for `keys`, save each as soon as it is complete, and return them.

    `on_progress` is called with the fraction of work done and the speed in tokens per second; if it
    returns False, the rows completed so far are returned. `kernel` overrides the one in `config`.
    Raises RunError if weights are missing (before anything is measured) or a loss is not finite.
    """
    requests = measurement_requests(config, data, keys)
    # Not a set: all ranks must look up the checkpoints in the same order.
    training_tokens = dict.fromkeys(request.at_tokens for request in requests)
    checkpoints = {tokens: _find_checkpoint(run, config, tokens) for tokens in training_tokens}
    total_tokens = sum(request.tokens for request in requests)
    rows: list[dict[str, Any]] = []
    completed = 0
    for at_tokens, group in groupby(requests, attrgetter("at_tokens")):
        model = _load(checkpoints[at_tokens], config, data.vocab_size, kernel).to(device)
        progress = _training_progress(checkpoints[at_tokens], config)
        trained_encoding = model.encoding
        for request in group:

            def on_batch(tokens: int, seconds: float, completed: int = completed) -> bool:
                return on_progress((completed + tokens) / total_tokens, tokens / seconds)

            encoding = _requested_encoding(trained_encoding, config, request, progress)
            model.encoding = encoding.to(device)
            result = measure(
                model,
                request.windows,
                batch_tokens=config.evaluation.batch_tokens,
                precision=config.precision,
                on_batch=on_batch,
                budget=Budget.from_config(config),
            )
            if result is None:
                return rows
            rows += save_rows(run, config.planned.hash, data, request, result)
            completed += request.tokens
    return rows


def _requested_encoding(
    trained: Encoding, config: DictConfig, request: Request, progress: float
) -> Encoding:
    """Return the trained encoding, with the requested swap applied, if any; see `swap_encoding`."""
    swap = evaluation_swaps(config)[request.swap]
    if request.swap is None or swap is None:
        return trained
    return swap_encoding(trained, config, request.swap, swap, request.length, progress)


@deterministic_numerics()
def load_model(
    run: RunDirectory, config: DictConfig, vocab_size: int, device: torch.device
) -> Decoder:
    """Return the run's model with its final weights.

    Raises RunError if there is no intact checkpoint of the last step, or if a weight is not finite.
    """
    encoding = build_encoding(config)
    kernel = supported_kernel(config, [encoding], device)
    checkpoint = _find_checkpoint(run, config, None)
    with restored_random_state():
        model = _load(checkpoint, config, vocab_size, kernel, encoding)
    for name, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise RunError(
                f"{checkpoint.path}: {name} contains NaN or infinite values, because"
                f" training diverged or the file was modified; train again with a lower"
                f" optimizer.learning_rate"
            )
    return model.to(device)


def supported_kernel(
    config: DictConfig, encodings: Sequence[Encoding], device: torch.device
) -> str:
    """Return the kernel of a saved run's configuration, or `auto` if it cannot be used here.

    A kernel that was requested for training on a GPU may not run on a CPU. All kernels compute the
    same function.
    """
    try:
        for encoding in encodings:
            check_kernel(config, encoding, device)
    except UnsupportedKernelError as error:
        log.warning("using kernel=auto instead of %s: %s", config.kernel, error.reason)
        return "auto"
    return config.kernel


def _find_checkpoint(run: RunDirectory, config: DictConfig, at_tokens: int | None) -> Checkpoint:
    """Return the checkpoint after `at_tokens` training tokens; None means the final one.

    Raises RunError if this checkpoint is missing or corrupt.
    """
    if at_tokens is not None:
        step = evaluated_steps(config)[at_tokens]
        checkpoint = broadcast_from_rank0(lambda: find_weights(run.checkpoints, step))
        if checkpoint is None:
            raise RunError(
                f"{run.name} has no intact weights from step {step} for evaluation.at_tokens="
                f"{at_tokens}; weights are kept only if evaluation.at_tokens is set before"
                " training, so train again under a different name=..., or remove the value"
            )
        checkpoint.check_metrics(run)
        return checkpoint
    checkpoint = broadcast_from_rank0(lambda: latest_checkpoint(run.checkpoints))
    total = run.trained_steps(training_steps(config).total)
    if checkpoint is not None and total < training_steps(config).total:
        checkpoint.check_metrics(run)  # because `total` comes from metrics.jsonl
    if checkpoint is None or checkpoint.step < total:
        raise _not_trained_error(run, checkpoint, total)
    checkpoint.check_is_final(run, config.planned.hash)
    return checkpoint


def _not_trained_error(run: RunDirectory, checkpoint: Checkpoint | None, total: int) -> RunError:
    """Return the error for a run without an intact checkpoint of its last step, `total`."""
    num_checkpoints = len(list_checkpoints(run.checkpoints))
    if checkpoint is not None:
        latest = f"its latest intact checkpoint is from step {checkpoint.step} of {total}"
    elif num_checkpoints:
        latest = f"it has no intact checkpoint ({num_checkpoints} corrupt)"
    else:
        latest = "it has no checkpoint"
    command = f"the command that `{experiment_command('status', run.path.parent)}` prints"
    if run.status().state == "finished":
        return RunError(
            f"{run.name} finished, but {latest}; to redo the missing steps, delete"
            f" {run.status_file} and run {command}"
        )
    return RunError(f"{run.name} has not finished training: {latest}; resume it with {command}")


def _load(
    checkpoint: Checkpoint,
    config: DictConfig,
    vocab_size: int,
    kernel: str | None,
    encoding: Encoding | None = None,
) -> Decoder:
    """Return the model with the weights of `checkpoint`; see `build_model` for the arguments.

    The shapes are compared first, because an untrusted configuration could describe a model that
    exhausts the machine's memory.
    """
    weights = checkpoint.weights(config.planned.hash)
    encoding = encoding or build_encoding(config)
    expected = _shapes(build_meta_model(config, vocab_size, encoding).state_dict())
    if wrong := sorted(dict(expected.items() ^ _shapes(weights).items())):
        raise checkpoint.load_error(ValueError(f"it does not fit the model: {wrong[0]}"))
    model = build_model(config, vocab_size, encoding, kernel)
    try:
        model.load_state_dict(weights, strict=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise checkpoint.load_error(error) from error
    # The encoding's state that is saved with averaged weights may come from an earlier step.
    model.encoding.set_training_progress(_training_progress(checkpoint, config))
    return model


def _training_progress(checkpoint: Checkpoint, config: DictConfig) -> float:
    return checkpoint.step / training_steps(config).total


def _shapes(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(value, "shape", None) for name, value in state.items()}
