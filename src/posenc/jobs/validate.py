"""Validation of a job before anything is trained: components are built, limits compared."""

from collections.abc import Callable
from typing import Any

import torch
from omegaconf import DictConfig

from posenc.attention.choice import layer_choices
from posenc.attention.precision import dtype_of
from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.config.settings import evaluation_lengths
from posenc.config.steps import training_steps
from posenc.config.swaps import evaluation_swaps
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.protocols import PROTOCOLS, check_protocols
from posenc.evaluation.swap import swapped_config
from posenc.jobs.job_config import COMPONENTS
from posenc.model.build import build_encoding
from posenc.model.device import check_accelerator, device_of

STRATEGIES = ("ddp", "fsdp")
LENGTH_PARAMETER = "max_length"
"""The parameter of encodings that sets the longest sequence."""


def validate(config: DictConfig) -> Encoding:
    """Build every component that needs no data, and return the encoding.

    Raises ConfigError if one cannot be built.
    """
    modules = list(config.modules)
    for name, num_args in COMPONENTS.items():
        check(config.get(name), name=name, modules=modules, num_args=num_args)
    training_steps(config)
    optimizer = build(config.optimizer, name="optimizer", modules=modules)
    parameter = torch.nn.Linear(1, 1)
    _as_config_error("optimizer", lambda: optimizer(parameter))
    schedule = build(config.schedule, name="schedule", modules=modules)
    _as_config_error("schedule", lambda: schedule(0, 1))
    build(config.logger, name="logger", modules=modules)
    encoding = build_encoding(config, modules)
    _validate_kernel(config, encoding)
    _validate_strategy(config, encoding)
    validate_evaluation(config, encoding)
    return encoding


def validate_devices(config: DictConfig, devices: int) -> None:
    """Raise ConfigError if this machine lacks the requested GPUs."""
    check_accelerator(config)
    validate_device_count(device_of(config), devices)


def validate_device_count(device: torch.device, devices: int) -> None:
    """Raise ConfigError for more CUDA GPUs than this machine has."""
    available = torch.cuda.device_count()
    if device.type == "cuda" and devices > available:
        raise ConfigError(
            f"devices={devices}, but only {available} CUDA GPUs are available; give"
            f" devices={available} or fewer, or trainer=cpu"
        )


def validate_evaluation(config: DictConfig, encoding: Encoding) -> None:
    """Raise ConfigError for protocols, lengths or swaps that the run cannot be evaluated with."""
    check_protocols(config)
    modules, lengths = list(config.modules), evaluation_lengths(config)
    for name, swap in evaluation_swaps(config).items():
        if name is None or swap is None:
            _validate_lengths(config, encoding)
            continue
        for length in lengths:
            changed = swapped_config(config, name, swap, length)
            swapped = _build_swapped(f"evaluation/swap={name}", changed, modules)
            _validate_lengths(changed, swapped)
            _validate_kernel(config, swapped)


def validate_data(config: DictConfig, data: Dataset) -> None:
    """Raise ConfigError for splits that are too short to train or evaluate on."""
    data.training_batches(config.train_length, config.seed)
    if config.validation.every_tokens is not None:
        if "validation" not in data.splits:
            raise ConfigError(
                f"data={config.choices.data} has no validation split; give one, or"
                f" validation.every_tokens=null and evaluation.split=..."
            )
        data.check_length("validation", config.train_length)
    validate_evaluation_data(config, data)


def validate_evaluation_data(config: DictConfig, data: Dataset) -> None:
    """Raise ConfigError if the split is too short or a protocol does not fit the data."""
    split, lengths = config.evaluation.split, evaluation_lengths(config)
    for length in lengths:
        data.check_length(split, length)
    for protocol in config.evaluation.protocols:
        if PROTOCOLS[protocol].spans is None:
            data.examples(split, lengths[-1])
        else:
            data.token_array(split)


def _validate_kernel(config: DictConfig, encoding: Encoding) -> None:
    device, dtype = device_of(config), dtype_of(config.precision)
    _as_config_error("kernel", lambda: layer_choices(config.kernel, encoding, device, dtype))


def _validate_strategy(config: DictConfig, encoding: Encoding) -> None:
    strategy = config.trainer.get("strategy")
    if strategy not in STRATEGIES:
        raise ConfigError(f"trainer.strategy={strategy!r} must be one of {', '.join(STRATEGIES)}")
    if config.devices == 1 or strategy != "fsdp":
        return
    if scalars := [name for name, weight in encoding.named_parameters() if weight.ndim == 0]:
        raise ConfigError(
            f"trainer.strategy=fsdp cannot shard scalar parameters, such as encoding.{scalars[0]}"
            f" of encoding={config.choices.encoding}; give trainer.strategy=ddp"
        )


def _validate_lengths(config: DictConfig, encoding: Encoding) -> None:
    longest, limit = max(evaluation_lengths(config)), encoding.max_length()
    if limit is not None and longest > limit:
        adjustable = config.encoding.get(LENGTH_PARAMETER, 0) in (None, limit)
        larger = f"encoding.{LENGTH_PARAMETER}={longest} or " if adjustable else ""
        raise ConfigError(
            f"evaluation length {longest} exceeds the {limit} positions of"
            f" encoding={config.choices.encoding}; give {larger}shorter evaluation lengths"
        )


def _build_swapped(name: str, config: DictConfig, modules: list[str]) -> Encoding:
    try:
        return build_encoding(config, modules)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _as_config_error(name: str, call: Callable[[], Any]) -> None:
    """Call a function; its ValueError becomes a ConfigError under the setting's name."""
    try:
        call()
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
