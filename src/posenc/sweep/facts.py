"""What must be true of a configuration before anything is trained."""

from typing import Any

import torch
from omegaconf import DictConfig

from posenc.config.components import build, check
from posenc.config.errors import ConfigError
from posenc.config.settings import evaluation_lengths, steps_of
from posenc.data.tokenized import TokenizedData
from posenc.data.windows import TrainingWindows
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding
from posenc.model.decoder import Decoder
from posenc.model.kernels import kernel, refuse, resolve

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

REACH = "length", "longest"
"""Knobs of an encoding that set how far it reaches, where they hold its limit."""


def check_components(config: DictConfig) -> None:
    """Build what needs no data: ConfigError for every knob, width or device that cannot be."""
    check_parts(config)
    check_devices(config)


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
    _refusal("kernel", lambda: refuse(resolve(config.kernel), encoding, config.precision))
    check_reach(config, encoding)


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


def check_devices(config: DictConfig) -> None:
    """ConfigError for a GPU, or a number of devices, that is not there."""
    there = torch.cuda.device_count()
    if config.trainer.accelerator == "gpu" and not there:
        raise ConfigError("trainer=gpu, but no CUDA GPU is there; give trainer=cpu or trainer=auto")
    if config.devices != 1:
        raise ConfigError(
            f"devices={config.devices}: one device a run is supported; give devices=1"
        )


def check_data(config: DictConfig, data: TokenizedData) -> int:
    """Check that the data is long enough for every window; the model's number of parameters."""
    TrainingWindows(data.stream("train"), config.train_length, config.seed)
    if config.validation.every_tokens is not None:
        if "validation" not in data.splits:
            raise ConfigError(
                f"data={config.choices.data} has no validation split; give one, or"
                f" validation.every_tokens=null and evaluation.split=..."
            )
        check_long_enough(data, "validation", config.train_length)
    check_long_enough(data, config.evaluation.split, max(evaluation_lengths(config)))
    return count_parameters(config, data.vocabulary_size)


def count_parameters(config: DictConfig, vocabulary: int) -> int:
    """Trained numbers of the model, without allocating it."""
    return skeleton(config, vocabulary).parameter_count()


def skeleton(config: DictConfig, vocabulary: int) -> Decoder:
    """The model on the meta device: shapes and no numbers, the encoding's aside."""
    modules = list(config.modules)
    encoding = build_encoding(config, modules)
    attend = kernel(resolve(config.kernel))
    with torch.device("meta"):
        return build(config.model, vocabulary, encoding, attend, name="model", modules=modules)


def check_long_enough(data: TokenizedData, split: str, length: int) -> None:
    """ConfigError for a split shorter than one window."""
    tokens = len(data.stream(split).tokens)
    if tokens < length:
        raise ConfigError(
            f"the {split} split of '{data.name}' has {tokens} tokens, fewer than one"
            f" window of {length}; give more text or shorter lengths"
        )


def _refusal(name: str, call: Any) -> None:
    try:
        call()
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
