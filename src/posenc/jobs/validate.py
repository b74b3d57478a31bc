"""Validation of a job before training: its components, lengths, devices and data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from posenc.check import verify_encoding
from posenc.config.component_types import is_user_code, user_targets
from posenc.config.components import build, check
from posenc.config.errors import ConfigError, first_line, plural
from posenc.config.settings import COMPONENTS, evaluation_lengths
from posenc.config.steps import evaluated_steps, training_steps
from posenc.config.swaps import evaluation_swaps
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.protocols import PROTOCOLS, check_protocols
from posenc.evaluation.swap import swapped_config
from posenc.jobs.verify import verify, verify_optimizer, verify_schedule
from posenc.model.build import build_encoding, check_kernel
from posenc.model.device import attention_dtype, check_accelerator, select_device
from posenc.tracking.build_tracker import build_tracker
from posenc.training.optimizer import optimizer_factory
from posenc.training.schedule import build_scheduler


def validate(
    config: DictConfig, verified: set[str] | None = None, device: torch.device | None = None
) -> Encoding:
    """Build every component that needs no data, and return the encoding.

    `verified` is passed on to `verify`; if it is None, the encoding is always verified. `device` is
    that of the training, by default the one that the run would use on this machine. Raises
    ConfigError if a component cannot be built or the components cannot be used together.
    """
    modules = list(config.modules)
    for name in COMPONENTS:
        check(config.get(name), name=name, modules=modules)
    _validate_optimization(config)
    if config.get("callbacks") or config.get("profiler"):
        from posenc.training.callbacks import build_callbacks  # Lightning takes seconds to import
        from posenc.training.trainer import build_profiler

        build_callbacks(config)
        build_profiler(config, Path(config.outputs_dir))
    build_tracker(config)
    encoding = build_encoding(config)
    verify(config, encoding, set() if verified is None else verified)
    _validate_strategy(config, encoding)
    device = device or select_device(config)
    for evaluated in [encoding, *validate_evaluation(config, encoding)]:
        _validate_kernel(config, evaluated, device)
    return encoding


def _validate_optimization(config: DictConfig) -> None:
    """Step the optimizer and the schedule on a tiny model. Raises ConfigError if that fails."""
    total, optimizer = training_steps(config).total, validate_optimizer(config)
    schedule = build(config.schedule, name="schedule", modules=list(config.modules))
    scheduler = _as_config_error("schedule", lambda: build_scheduler(schedule, optimizer, total))
    _as_config_error("optimizer", optimizer.step)
    _as_config_error("schedule", scheduler.step)
    if is_user_code(config.schedule._target_, "schedule"):
        _as_config_error("schedule", lambda: verify_schedule(config, total))


def validate_optimizer(config: DictConfig) -> torch.optim.Optimizer:
    """Return the optimizer of a tiny model, after a step.

    Raises ConfigError if that fails, or if a user-defined optimizer has state that is not saved.
    """
    model, build_optimizer = torch.nn.Linear(1, 1), optimizer_factory(config)
    optimizer = _as_config_error("optimizer", lambda: build_optimizer(model))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            f"optimizer={config.optimizer._target_} returns {type(optimizer).__name__}, which is"
            f" not a torch.optim.Optimizer"
        )
    if is_user_code(config.optimizer._target_, "optimizer"):
        _as_config_error("optimizer", lambda: verify_optimizer(config))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    _as_config_error("optimizer", optimizer.step)
    return optimizer


def validate_devices(config: DictConfig, devices: int) -> None:
    """Raise ConfigError if this machine does not have the requested accelerator and devices."""
    check_accelerator(config)
    validate_device_count(select_device(config), devices)


def validate_device_count(device: torch.device, devices: int) -> None:
    """Raise ConfigError if `device` is CUDA and `devices` exceeds the number of GPUs."""
    available = torch.cuda.device_count()
    if device.type == "cuda" and devices > available:
        raise ConfigError(
            f"devices={devices}, but this machine has {plural(available, 'CUDA GPU')}; set"
            f" devices={available} or fewer, or trainer=cpu"
        )


def validate_evaluation(config: DictConfig, encoding: Encoding) -> list[Encoding]:
    """Return the encodings that the evaluation swaps in, for each length.

    Raises ConfigError if a protocol, length, swap or `at_tokens` is invalid for the run.
    """
    check_protocols(config)
    evaluated_steps(config)
    swapped_encodings: list[Encoding] = []
    lengths = evaluation_lengths(config)
    for name, swap in evaluation_swaps(config).items():
        if name is None or swap is None:
            _validate_lengths(config, encoding)
            continue
        for length in lengths:
            swapped = swapped_config(config, name, swap, length)
            try:
                swapped_encoding = build_encoding(swapped)
                if length == lengths[-1] and user_targets({"encoding": dict(swap)}):
                    dtype = attention_dtype(config.precision)
                    verify_encoding(swapped_encoding, dtype, for_training=False)
            except ConfigError as error:
                raise ConfigError(f"evaluation/swap={name}: {error}") from None
            _validate_lengths(swapped, swapped_encoding)
            swapped_encodings.append(swapped_encoding)
    return swapped_encodings


def validate_data(config: DictConfig, data: Dataset) -> None:
    """Raise ConfigError if a split is missing, or too short to train or evaluate on."""
    data.training_batches(config.train_length, config.seed)
    if config.validation.every_tokens is not None:
        if "validation" not in data.splits:
            raise ConfigError(
                f"data={config.choices.data} has no validation split; add one, or set"
                f" validation.every_tokens=null and evaluation.split=..."
            )
        data.check_length("validation", config.train_length)
    validate_evaluation_data(config, data)


def validate_evaluation_data(config: DictConfig, data: Dataset) -> None:
    """Raise ConfigError if the evaluation split is missing or too short.

    Also raises it if the data does not support a protocol.
    """
    split, lengths = config.evaluation.split, evaluation_lengths(config)
    for length in lengths:
        data.check_length(split, length)
    for protocol in config.evaluation.protocols:
        if PROTOCOLS[protocol].spans is None:
            data.examples(split, lengths[-1])
        else:
            data.token_array(split)


def _validate_kernel(config: DictConfig, encoding: Encoding, device: torch.device) -> None:
    _as_config_error("kernel", lambda: check_kernel(config, encoding, device))


def _validate_strategy(config: DictConfig, encoding: Encoding) -> None:
    if config.devices == 1 or config.trainer.strategy != "fsdp":
        return
    if scalars := [name for name, weight in encoding.named_parameters() if weight.ndim == 0]:
        raise ConfigError(
            f"trainer.strategy=fsdp cannot shard scalar parameters, such as encoding.{scalars[0]}"
            f" of encoding={config.choices.encoding}; set trainer.strategy=ddp"
        )


def _validate_lengths(config: DictConfig, encoding: Encoding) -> None:
    length, limit = max(evaluation_lengths(config)), _evaluation_limit(config, encoding)
    if limit is not None and length > limit:
        is_planned = "planned" in config
        adjustable = not is_planned and config.encoding.get("max_length", 0) in (None, limit)
        higher_limit = f"set encoding.max_length={length} or " if adjustable else ""
        raise ConfigError(
            f"evaluation length {length} exceeds the {limit} positions of"
            f" encoding={config.choices.encoding}; {higher_limit}use shorter evaluation lengths"
        )


def _evaluation_limit(config: DictConfig, encoding: Encoding) -> int | None:
    """Return the maximum evaluation length, which training may have changed (DroPE)."""
    final_only = not config.evaluation.at_tokens
    encoding.set_training_progress(1.0 if final_only else 0.0)
    limit = encoding.max_length()
    encoding.set_training_progress(0.0)
    return limit


def _as_config_error(name: str, call: Callable[[], Any]) -> Any:
    """Call a function, and re-raise its errors as a ConfigError that names the setting."""
    try:
        return call()
    except ConfigError:
        raise
    except Exception as error:  # user code may raise anything
        error_type = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ConfigError(f"{name}: {error_type}{first_line(error)}") from None
