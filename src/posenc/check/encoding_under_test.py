"""The encoding under test, built into tiny models, and the results of its checks."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding, build_model
from posenc.model.transformer import Decoder, derive_seed, seed_cpu

MODEL_KEYS = ["model", "encoding", "train_length", "kernel", "seed", "modules"]
VOCAB_SIZE = 50
MIN_TRAIN_LENGTH, MAX_TRAIN_LENGTH = 8, 512
SEED = 0
EXACT_TOLERANCE = 1e-12
"""Float64 tolerance for values that should be equal."""

Changes = Mapping[str, Any]
"""New values for some keys of the configuration."""


@dataclass(frozen=True)
class Result:
    """Whether an encoding has a property, with one line of evidence; a `hint` is not a failure."""

    status: Literal["pass", "known limitation", "hint", "fail"]
    evidence: str


passed, hint, failed = partial(Result, "pass"), partial(Result, "hint"), partial(Result, "fail")


def known_limitation(reason: str, evidence: str) -> Result:
    return Result("known limitation", f"{reason}; {evidence}")


def compare_with_declaration(holds: bool, evidence: str, limitation: str | None) -> Result:
    """Return pass, known limitation or fail for a property that may be declared as a limitation.

    `limitation` is the declared reason why the property does not hold, or None.
    """
    if limitation is None:
        return passed(evidence) if holds else failed(evidence)
    if holds:
        declared = f"declared as a limitation ({limitation})"
        return failed(f"{declared}, but the property holds: {evidence}")
    return known_limitation(limitation, evidence)


@dataclass(frozen=True, eq=False)
class EncodingUnderTest:
    """A training configuration, and the comment at the top of its encoding's YAML.

    Low precision is tested up to `largest_position`, because its errors grow with the position.
    Models are float64 and in evaluation mode; zeros in the encoding's parameters are set to small
    negative values.
    """

    config: DictConfig
    description: str
    largest_position: int = 16_000

    @property
    def train_length(self) -> int:
        """The training length in tokens."""
        return self.config.train_length

    @cached_property
    def configured_model(self) -> Decoder:
        """The model for the unchanged configuration; callers must not modify it."""
        return self.build_model({})

    def check_model(self) -> None:
        """Raise ConfigError if the model cannot be built or tested, regardless of its encoding."""
        if not MIN_TRAIN_LENGTH <= self.train_length <= MAX_TRAIN_LENGTH:
            raise ConfigError(
                f"train_length={self.train_length} must be from {MIN_TRAIN_LENGTH} to"
                f" {MAX_TRAIN_LENGTH}, because models are tested at several times this length"
            )
        config = copy.deepcopy(self.config)
        config.encoding = {"_target_": "posenc.encodings.nope.NoPE"}
        build_model(config, VOCAB_SIZE)

    def build_model(self, changes: Changes) -> Decoder:
        """Return a new model; raises ConfigError if the changed configuration is invalid."""
        model = build_model(changed_config(self._model_config, changes), VOCAB_SIZE).double()
        perturb_zero_parameters(model.encoding)
        return model.eval()

    def build_encoding(self, changes: Changes) -> Encoding:
        """Return a new encoding in float32; raises ConfigError like `build_model`."""
        encoding = build_encoding(changed_config(self._model_config, changes))
        perturb_zero_parameters(encoding)
        return encoding.eval()

    def supported_length(self, length: int) -> tuple[int, Changes]:
        """Return a length to test and the configuration changes that it requires.

        The length is `length` if the encoding supports it, possibly only with `length` as the
        training length; otherwise, it is the encoding's maximum length.
        """
        limit = self.configured_model.encoding.max_length()
        if limit is None or limit >= length:
            return length, {}
        return self._with_train_length(length) or (limit, {})

    def supported_train_length(self, length: int) -> tuple[int, Changes]:
        """Like `supported_length`, but set the training length to `length` if that is valid."""
        return self._with_train_length(length) or self.supported_length(length)

    def _with_train_length(self, length: int) -> tuple[int, Changes] | None:
        """Return `length` and the change that sets train_length to it, or None if unsupported."""
        changes = {"train_length": length}
        try:
            limit = self.build_encoding(changes).max_length()
        except ConfigError:
            return None
        return (length, changes) if limit is None or limit >= length else None

    @cached_property
    def _model_config(self) -> DictConfig:
        """The settings that models depend on; copying the whole configuration would be slow."""
        return OmegaConf.masked_copy(self.config, MODEL_KEYS)


def changed_config(config: DictConfig, changes: Changes) -> DictConfig:
    """Return a copy of a configuration with new values for some keys."""
    config = copy.deepcopy(config)
    for key, value in changes.items():
        OmegaConf.update(config, key, value)
    return config


def perturb_zero_parameters(encoding: Encoding) -> None:
    """Set zeros in parameters to small negative values that depend on name and shape.

    If a parameter were all zeros, the encoding's options would have no visible effect, and some
    gradients would be zero.
    """
    for name, parameter in encoding.named_parameters():
        seed = derive_seed(SEED, f"{name} {list(parameter.shape)}")
        noise = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            parameter[parameter == 0] = -0.1 * noise[parameter == 0].to(parameter)


def random_tokens(length: int, seed: int = 0, batch: int = 2) -> Tensor:
    """Return random tokens [batch, length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB_SIZE, (batch, length), generator=generator)


def compute_logits(
    model: Decoder, tokens: Tensor, pos: Tensor | None = None, *, training: bool = False
) -> Tensor:
    """Return the model's logits; the seed is reset, so that every call is deterministic."""
    seed_cpu(SEED)
    try:
        return model.train(training)(tokens, pos)
    finally:
        model.eval()


def max_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference between two tensors; infinity instead of NaN."""
    return absolute_difference(a, b).max().item()


def absolute_difference(a: Tensor, b: Tensor) -> Tensor:
    """Return |a - b|, with infinity instead of NaN."""
    infinity = float("inf")
    return (a - b).abs().nan_to_num(nan=infinity, posinf=infinity)
