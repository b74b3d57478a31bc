"""An encoding to inspect, and groups of properties that are measured together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig

from posenc.check.encoding_under_test import changed_config, perturb_zero_parameters
from posenc.config.errors import one_line
from posenc.encodings.base import Encoding
from posenc.model.build import build_encoding
from posenc.model.transformer import seed_cpu
from posenc.report.encoding_styles import Style, line_styles
from posenc.report.table import Value

EXTRAPOLATION_FACTOR = 4
"""The context length at which extrapolation is measured, as a multiple of the training length."""


@dataclass(frozen=True, eq=False)
class InspectedEncoding:
    """An encoding in float64 and eval mode, with zero-initialized parameters perturbed."""

    label: str
    config: DictConfig

    @property
    def name(self) -> str:
        """The encoding's name: the option of the config group `encoding`."""
        return self.config.choices.encoding

    @property
    def train_length(self) -> int:
        """The training length in tokens."""
        return self.config.train_length

    @cached_property
    def encoding(self) -> Encoding:
        """The configured encoding; raises ConfigError if it cannot be built."""
        return self.build({})

    @property
    def max_length(self) -> int | None:
        """The maximum sequence length; None if there is no limit."""
        return self.encoding.max_length()

    def clamp_length(self, length: int) -> int:
        """Return `length`, or the maximum sequence length if that is less."""
        return length if self.max_length is None else min(length, self.max_length)

    @property
    def extrapolation_length(self) -> int:
        """EXTRAPOLATION_FACTOR training lengths, but at most the encoding's maximum length."""
        return self.clamp_length(EXTRAPOLATION_FACTOR * self.train_length)

    @cached_property
    def has_1d_positions(self) -> bool:
        """Whether each position is a single number rather than several coordinates."""
        return self.positions(2).ndim == 1

    def with_next_seed(self) -> "InspectedEncoding":
        """Return the same encoding with the next seed."""
        config = changed_config(self.config, {"seed": self.config.seed + 1})
        return InspectedEncoding(self.label, config)

    def build(self, changes: dict[str, Any]) -> Encoding:
        """Build the encoding, with `changes` (key -> value) applied to the configuration."""
        encoding = build_encoding(changed_config(self.config, changes)).double().eval()
        perturb_zero_parameters(encoding)
        return encoding

    def positions(self, length: int) -> torch.Tensor:
        """Return positions for `length` tokens; random positions depend on the seed."""
        seed_cpu(self.config.seed)
        return self.encoding.positions(length, torch.device("cpu"))


def label_styles(encodings: Sequence[InspectedEncoding]) -> dict[str, Style]:
    """Return the style of each encoding by label, the same as in the reports of experiments."""
    return line_styles({inspected.label: inspected.name for inspected in encodings})


class PropertyValue(NamedTuple):
    """A value with its description, or None with the reason why the property does not apply."""

    value: Value
    description: str


class NotApplicableError(Exception):
    """The properties of a group do not apply to an encoding; the message is the reason."""


@dataclass(frozen=True)
class PropertyGroup:
    """Properties that one function measures; `names` are the column names in tables.

    The function returns a value for each name, in this order.
    """

    category: str
    names: Sequence[str]
    function: Callable[[InspectedEncoding], Sequence[PropertyValue]]

    def measure(self, inspected: InspectedEncoding) -> dict[str, PropertyValue]:
        """Return the value of each property by name.

        If the function raises NotApplicableError or ValueError, every value is None, with the error
        as its reason.
        """
        try:
            values = self.function(inspected)
        except NotApplicableError as error:
            values = [PropertyValue(None, str(error))] * len(self.names)
        except ValueError as error:
            reason = f"not supported: {one_line(error)}"
            values = [PropertyValue(None, reason)] * len(self.names)
        return dict(zip(self.names, values, strict=True))
