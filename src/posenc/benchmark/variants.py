"""What is measured: every encoding, kernel and length of a request, forward or through a step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig

from posenc.attention.choice import describe, layer_choices
from posenc.attention.precision import dtype_of
from posenc.benchmark.labels import labels
from posenc.benchmark.settings import PASSES
from posenc.config.components import build
from posenc.config.errors import ConfigError
from posenc.config.steps import sequences_per_step
from posenc.encodings.base import Encoding
from posenc.model.build import skeleton
from posenc.model.device import check_accelerator, device_of
from posenc.model.flops import BACKWARD, model_flops


@dataclass(frozen=True)
class Facts:
    """The attention kernels that are used, the reason for each, and FLOPs of a forward pass."""

    kernels: str
    kernel_reason: str
    flops_per_token: int


@dataclass(frozen=True)
class Variant:
    """One thing to time; `config` is shared by the passes of one model."""

    label: str
    config: DictConfig
    facts: Facts
    pass_: str

    @property
    def length(self) -> int:
        return self.config.train_length

    @property
    def flops(self) -> int:
        """Model FLOPs of the whole pass."""
        times = 1 + BACKWARD if self.pass_ == "step" else 1
        return times * self.config.batch_tokens * self.facts.flops_per_token

    def __str__(self) -> str:
        return f"{self.label}, kernel={self.config.kernel}, L={self.length}, {self.pass_}"


def variants_of(jobs: Sequence[tuple[Sequence[str], DictConfig]]) -> list[Variant]:
    """The variants of composed jobs, those to be compared next to each other.

    A job is its overrides and its configuration. Every complaint about any of them comes in one
    ConfigError.
    """
    words, configs = [job[0] for job in jobs], [job[1] for job in jobs]
    found: dict[tuple[str, str, int, str], Variant] = {}
    complaints: dict[str, list[str]] = {}
    names = labels([config.choices.encoding for config in configs], words)
    for label, config in zip(names, configs, strict=True):
        try:
            facts = examine(config)
        except (ConfigError, ValueError) as error:
            complaints.setdefault(str(error), []).append(label)
            continue
        for pass_ in config.passes:
            key = (label, config.kernel, config.train_length, pass_)
            found.setdefault(key, Variant(label, config, facts, pass_))
    if complaints:
        raise ConfigError("\n".join(_of_whom(*item, len(jobs)) for item in complaints.items()))
    return sorted(found.values(), key=lambda v: (v.length, PASSES.index(v.pass_)))


def _of_whom(complaint: str, labels: list[str], jobs: int) -> str:
    """A complaint with the encodings that it is about, where it is not about all."""
    return complaint if len(labels) == jobs else f"{', '.join(dict.fromkeys(labels))}: {complaint}"


def examine(config: DictConfig) -> Facts:
    """Build everything but the weights; ValueError or ConfigError for what cannot be."""
    modules = list(config.modules)
    sequences_per_step(config)
    check_accelerator(config)
    optimizer = build(config.optimizer, name="optimizer", modules=modules)
    try:
        optimizer(torch.nn.Linear(1, 1))
    except ValueError as error:
        raise ConfigError(f"optimizer: {error}") from None
    model = skeleton(config, config.vocab_size)
    encoding, device = model.encoding, device_of(config)
    _check_reach(config, encoding)
    choices = layer_choices(config.kernel, encoding, device, dtype_of(config.precision))
    kernels = ", ".join(dict.fromkeys(choice.name for choice in choices))
    return Facts(kernels, describe(choices), model_flops(model, config.train_length))


def _check_reach(config: DictConfig, encoding: Encoding) -> None:
    limit = encoding.max_length()
    if limit is not None and config.train_length > limit:
        raise ConfigError(f"train_length={config.train_length} is past its end; it reaches {limit}")
