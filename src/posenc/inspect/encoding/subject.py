"""An encoding to be inspected: its label, its configuration, and what is built of it."""

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from posenc.check.under_test import move_off_zero
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding


@dataclass(frozen=True, eq=False)
class Subject:
    """Encodings are in float64 and in evaluation mode, what starts at zero moved off it."""

    label: str
    config: DictConfig

    @property
    def length(self) -> int:
        """The training length in tokens."""
        return self.config.train_length

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of the configuration as it is; ConfigError where it cannot be built."""
        return self.build({})

    @property
    def limit(self) -> int | None:
        """The longest sequence that can be encoded at all; None for any."""
        return self.encoding.max_length()

    @cached_property
    def along_sequence(self) -> bool:
        """Whether positions are numbers along the sequence rather than coordinates."""
        return self.positions(2).ndim == 1

    def other_seed(self) -> "Subject":
        """The same with weights, and random positions, of another seed."""
        config = copy.deepcopy(self.config)
        config.seed += 1
        return Subject(self.label, config)

    def build(self, changes: dict[str, Any]) -> Encoding:
        """One of its own, with other values at some keys of the configuration."""
        config = copy.deepcopy(self.config)
        for key, value in changes.items():
            OmegaConf.update(config, key, value)
        encoding = build_encoding(config, list(config.modules)).double().eval()
        move_off_zero(encoding)
        return encoding

    def positions(self, length: int) -> torch.Tensor:
        """Coordinates of so many tokens, as the encoding gives them; random ones alike."""
        torch.manual_seed(self.config.seed)
        return self.encoding.positions(length, torch.device("cpu"))
