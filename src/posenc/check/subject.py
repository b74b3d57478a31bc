"""An encoding as the properties see it: what builds very small models of its configuration."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding, build_model
from posenc.model.decoder import Decoder
from posenc.model.transformer import seed_of

SMALL = (
    "model.width=32",
    "model.layers=4",
    "model.heads=4",
    "model.feed_forward=64",
    "model.norm=rms_norm",
    "train_length=24",
)
"""Overrides of `train` under which the whole suite takes a second or two.

Four layers, so that an encoding may differ in every fourth; no layer norm, which would not see
what is the same in every channel.
"""

VOCABULARY = 50
SHORTEST = 8
SEED = 0

Changes = Mapping[str, Any]
"""Keys of a configuration -> what they are to be instead."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A configuration of `train`, and the line that heads its encoding's YAML.

    Models are in evaluation mode and in float64, their encodings moved off zero.
    """

    config: DictConfig
    description: str

    @property
    def length(self) -> int:
        """The training length in tokens."""
        return self.config.train_length

    @cached_property
    def plain(self) -> Decoder:
        """The model of the configuration as it is; its weights and knobs are never changed."""
        return self.model({})

    def check_host(self) -> None:
        """ConfigError for a model that cannot be built, or tried, whatever its encoding."""
        if self.length < SHORTEST:
            raise ConfigError(f"train_length={self.length}: give {SHORTEST} or more to check with")
        config = copy.deepcopy(self.config)
        config.encoding = {"_target_": "posenc.encodings.nope.NoPE"}
        build_model(config, VOCABULARY)

    def model(self, changes: Changes) -> Decoder:
        """A model of its own; ConfigError where the changes are refused."""
        model = build_model(self._changed(changes), VOCABULARY).double()
        move_off_zero(model.encoding)
        return model.eval()

    def encoding(self, changes: Changes) -> Encoding:
        """An encoding of its own, in float32, as `model` builds it."""
        config = self._changed(changes)
        encoding = build_encoding(config, list(config.modules))
        move_off_zero(encoding)
        return encoding.eval()

    def reach(self, length: int) -> tuple[int, Changes]:
        """`length`, or as near to it as the encoding can, and the changes with which it can.

        An encoding with a limit is given a training length to go by, if it can be built so.
        """
        limit = self.plain.encoding.max_length()
        if limit is None or limit >= length:
            return length, {}
        return self._raised(length) or (limit, {})

    def trained_to(self, length: int) -> tuple[int, Changes]:
        """The same, with a training length of `length` where there can be one."""
        return self._raised(length) or self.reach(length)

    def _raised(self, length: int) -> tuple[int, Changes] | None:
        changes = {"train_length": length}
        try:
            limit = self.encoding(changes).max_length()
        except ConfigError:
            return None
        return (length, changes) if limit is None or limit >= length else None

    def _changed(self, changes: Changes) -> DictConfig:
        config = copy.deepcopy(self.config)
        for key, value in changes.items():
            OmegaConf.update(config, key, value)
        return config


def move_off_zero(encoding: Encoding) -> None:
    """Move what starts at zero a little below it, by a parameter's name and shape alone.

    Where a table is zero, neither its knobs nor its gradients can be seen.
    """
    for name, parameter in encoding.named_parameters():
        seed = seed_of(SEED, f"{name} {list(parameter.shape)}")
        noise = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            parameter[parameter == 0] = -0.1 * noise[parameter == 0].to(parameter)


def tokens(length: int, seed: int = 0, batch: int = 2) -> Tensor:
    """Random tokens [batch, length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (batch, length), generator=generator)


def output(
    model: Decoder, given: Tensor, pos: Tensor | None = None, *, training: bool = False
) -> Tensor:
    """The model's logits; what is drawn at random in a forward pass is drawn alike in each."""
    torch.manual_seed(SEED)
    try:
        return model.train(training)(given, pos)
    finally:
        model.eval()
