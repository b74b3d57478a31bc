"""Evaluates a saved run, for both `posenc evaluate` and `LoadedRun.evaluate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.api.saved_run import locked_run, run_tokenizer, training_data, training_threads
from posenc.config.component_types import check_trusted, user_targets
from posenc.config.compose import LENGTH_KEYS
from posenc.config.errors import ConfigError
from posenc.config.identity import check_identity
from posenc.config.settings import check_settings
from posenc.data.build_data import evaluation_data
from posenc.evaluation.evaluate import evaluate, supported_kernel
from posenc.evaluation.requests import requested_row_keys
from posenc.jobs.validate import validate_evaluation, validate_evaluation_data
from posenc.model.build import build_encoding
from posenc.model.device import deterministic_numerics, select_device
from posenc.runs.row_types import Row
from posenc.runs.run_directory import RunDirectory
from posenc.runs.trusted_code import is_trusted
from posenc.tracking.build_tracker import build_tracker


@dataclass(frozen=True)
class Evaluation:
    """A validated evaluation of a run; `data` is None to evaluate on the run's own data.

    `kernel` is the kernel of `config`, or `auto` if it does not support this device or a swap.
    `split_is_set` is whether the user set `evaluation.split`; if not, data with a single split is
    evaluated on that split.
    """

    run: RunDirectory
    config: DictConfig
    kernel: str
    data: DictConfig | None
    split_is_set: bool


def build_evaluation(
    run: RunDirectory,
    config: DictConfig,
    request: DictConfig,
    user_keys: set[str],
    modules: Sequence[str],
) -> Evaluation:
    """Validate the requested evaluation of a run with the configuration `config`, and return it.

    `user_keys` are the keys that the user set, and `modules` the modules outside posenc that the
    user trusts. Raises ConfigError for settings that the run does not support, and RunError if its
    configuration has been edited since it was planned.
    """
    _check_trusted(request, modules)
    if "tokenizer" in user_keys:
        raise ConfigError(
            "tokenizer: a run is evaluated with its training tokenizer; omit tokenizer"
        )
    if all(OmegaConf.select(request, key) is None for key in LENGTH_KEYS):
        request.evaluation.lengths = list(config.planned.lengths)
    protocol_keys = {"data", "evaluation", "evaluation.protocols"}
    if "tasks" in config.evaluation.get("protocols", []) and not user_keys & protocol_keys:
        request.evaluation.protocols = ["tasks"]
    config.evaluation = request.evaluation
    check_settings(config)
    encoding = build_encoding(config)
    swapped = validate_evaluation(config, encoding)
    kernel = supported_kernel(config, [encoding, *swapped], select_device(config))
    check_identity(config)
    return Evaluation(run, config, kernel, request.get("data"), "evaluation.split" in user_keys)


def _check_trusted(request: DictConfig, modules: Sequence[str]) -> None:
    """Raise ConfigError for a class or function that the user has neither trusted nor trained with.

    A swap or data option may be from someone else's folder. Trusting the module of the
    run's encoding must not let the option call other functions in it.
    """
    values: Any = OmegaConf.to_container(request, resolve=True)
    for key in ("evaluation", "data"):
        for target in user_targets({key: values.get(key)}):
            if not is_trusted("target", target):
                check_trusted({"_target_": target}, key, modules)


def evaluate_run(evaluation: Evaluation, console: Console) -> list[Row]:
    """Compute the requested rows, save them in the run's `evaluation.json`, and return them.

    Raises ConfigError if the data does not support them or another process is using the run, and
    RunError if weights are missing or a loss is not finite.
    """
    run = evaluation.run
    with locked_run(run), training_threads(run), deterministic_numerics():
        return _evaluate(evaluation, console)


def _evaluate(evaluation: Evaluation, console: Console) -> list[Row]:
    run, config = evaluation.run, evaluation.config
    tracker = build_tracker(config)
    if evaluation.data is None:
        remedy = "to evaluate on the changed corpus, set data=... evaluation.split=..."
        data = training_data(config, remedy, console.print)
    else:
        tokenizer = run_tokenizer(run, config)
        data = evaluation_data(evaluation.data, tokenizer, config, console.print)
    if not evaluation.split_is_set and len(data.splits) == 1:  # use the only split
        config.evaluation.split = data.splits[0]
    validate_evaluation_data(config, data)
    keys = requested_row_keys(config, data.fingerprint)
    with console.status("evaluating") as status:

        def on_progress(done: float, rate: float) -> bool:
            status.update(f"evaluating {done:.0%} · {rate:,.0f} tokens/s")
            return True

        device = select_device(config)
        rows = evaluate(run, config, data, keys, device, on_progress, evaluation.kernel)
    # Log the configuration that the run was trained with, without this evaluation's settings.
    tracker.start(run, run.config(), "evaluate")
    tracker.finish(failed=False)
    return rows
