"""What must be true of a configuration before anything is trained."""

from typing import Any

import torch
from omegaconf import DictConfig

from posenc.attention import refuse, resolve
from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.config.settings import evaluation_lengths, steps_of
from posenc.config.swaps import swaps_of
from posenc.data.dataset import Dataset
from posenc.encodings.base import Encoding
from posenc.evaluation.protocols import PROTOCOLS, check_protocols
from posenc.evaluation.swap import swapped_config
from posenc.model.build import build_encoding, skeleton
from posenc.model.device import check_accelerator, device_of

STRATEGIES = ("ddp", "fsdp")
COMPONENTS = {
    "data": 0,
    "tokenizer": 0,
    "model": 3,
    "encoding": 1,
    "optimizer": 0,
    "schedule": 0,
    "logger": 0,
}
"""Config group -> how many arguments the host gives what it builds."""

REACH = ("max_length",)
"""Knobs of an encoding that set how far it reaches, where they hold its limit."""


def check_components(config: DictConfig) -> None:
    """Build what needs no data: ConfigError for every knob, width or device that cannot be."""
    check_parts(config)
    check_devices(config, config.devices)


def check_parts(config: DictConfig) -> None:
    """The same on a machine that may have any devices."""
    modules = list(config.modules)
    for name, facts in COMPONENTS.items():
        check(config.get(name), name=name, modules=modules, given=facts)
    steps_of(config)
    optimizer = build(config.optimizer, name="optimizer", modules=modules)
    parameter = torch.nn.Linear(1, 1)
    _refusal("optimizer", lambda: optimizer(parameter))
    schedule = build(config.schedule, name="schedule", modules=modules)
    _refusal("schedule", lambda: schedule(0, 1))
    build(config.logger, name="logger", modules=modules)
    encoding = build_encoding(config, modules)
    _check_kernel(config, encoding)
    _check_strategy(config, encoding)
    check_evaluation(config, encoding)


def check_evaluation(config: DictConfig, own: Encoding) -> None:
    """ConfigError for protocols that do not fit together, a length that the run's own encoding
    cannot take, or a swap that it or the kernel cannot."""
    check_protocols(config)
    modules, lengths = list(config.modules), evaluation_lengths(config)
    for name, swap in swaps_of(config).items():
        if name is None or swap is None:
            check_reach(config, own)
            continue
        for length in lengths:
            changed = swapped_config(config, name, swap, length)
            encoding = _built(f"evaluation/swap={name}", changed, modules)
            check_reach(changed, encoding)
            _check_kernel(config, encoding)


def _check_kernel(config: DictConfig, encoding: Encoding) -> None:
    """ConfigError where the kernel asked for cannot serve the encoding on the run's device."""
    name, device = resolve(config.kernel), device_of(config)
    _refusal("kernel", lambda: refuse(name, encoding, device, config.precision))


def _check_strategy(config: DictConfig, encoding: Encoding) -> None:
    """ConfigError for a way to train on several devices that there is not, or not for this."""
    strategy = config.trainer.get("strategy")
    if strategy not in STRATEGIES:
        raise ConfigError(f"trainer.strategy={strategy!r} must be one of {', '.join(STRATEGIES)}")
    if config.devices == 1 or strategy != "fsdp":
        return
    if single := [name for name, weight in encoding.named_parameters() if weight.ndim == 0]:
        raise ConfigError(
            f"trainer.strategy=fsdp cannot share out single numbers, as"
            f" encoding={config.choices.encoding} has in encoding.{single[0]}; give"
            f" trainer.strategy=ddp"
        )


def check_reach(config: DictConfig, encoding: Encoding) -> None:
    """ConfigError for an evaluation length that the encoding cannot reach."""
    longest, limit = max(evaluation_lengths(config)), encoding.max_length()
    if limit is not None and longest > limit:
        knobs = [key for key in REACH if config.encoding.get(key, 0) in (None, limit)]
        larger = f"encoding.{knobs[0]}={longest} or " if knobs else ""
        raise ConfigError(
            f"evaluation length {longest} is past the end of encoding={config.choices.encoding},"
            f" which reaches {limit} positions; give {larger}shorter evaluation lengths"
        )


def check_devices(config: DictConfig, devices: int) -> None:
    """ConfigError for a GPU, or so many of them on this machine, that is not there."""
    check_accelerator(config)
    check_device_count(device_of(config), devices)


def check_device_count(device: torch.device, devices: int) -> None:
    """ConfigError for more CUDA GPUs than this machine has."""
    available = torch.cuda.device_count()
    if device.type == "cuda" and devices > available:
        raise ConfigError(
            f"devices={devices}, but this machine has {available} CUDA GPUs; give"
            f" devices={available} or fewer, or trainer=cpu"
        )


def check_data(config: DictConfig, data: Dataset) -> int:
    """Check that the data is long enough for every window; the model's number of parameters."""
    data.training_batches(config.train_length, config.seed)
    if config.validation.every_tokens is not None:
        if "validation" not in data.splits:
            raise ConfigError(
                f"data={config.choices.data} has no validation split; give one, or"
                f" validation.every_tokens=null and evaluation.split=..."
            )
        data.check_length("validation", config.train_length)
    check_evaluation_data(config, data)
    return count_parameters(config, data.vocab_size)


def count_parameters(config: DictConfig, vocabulary: int) -> int:
    """Trained numbers of the model, without allocating it."""
    return skeleton(config, vocabulary).parameter_count()


def check_evaluation_data(config: DictConfig, data: Dataset) -> None:
    """ConfigError for a length that the split does not have, or a protocol for other data."""
    split, lengths = config.evaluation.split, evaluation_lengths(config)
    for length in lengths:
        data.check_length(split, length)
    for protocol in config.evaluation.protocols:
        if PROTOCOLS[protocol].spans is None:
            data.examples(split, lengths[-1])
        else:
            data.token_array(split)


def _built(name: str, config: DictConfig, modules: list[str]) -> Encoding:
    """The encoding; what refuses it says so under the name of the swap."""
    try:
        return build_encoding(config, modules)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _refusal(name: str, call: Any) -> None:
    try:
        call()
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
