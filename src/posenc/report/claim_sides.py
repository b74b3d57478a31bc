"""The sides of a comparison: values, changes, trends and n-gram models; lengths in tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2, log10
from statistics import StatisticsError, linear_regression
from typing import Any, Literal

from posenc.config.errors import ConfigError
from posenc.report.outcome import NoVerdictError
from posenc.report.quantities import Quantity
from posenc.report.scale import Scale

LONGEST = "longest"
LENGTH_PATTERN = re.compile(
    r"(?P<factor>\d+(?:\.\d+)?)?L(?:/(?P<divisor>[1-9]\d*))?(?P<offset>[+-]\d+)?"
)
MAX_LENGTH_CHARACTERS = 40


@dataclass(frozen=True)
class Length:
    """A length in tokens: `factor` times the training length plus `offset`, written as `text`."""

    text: str
    factor: float
    offset: int

    @classmethod
    def parse(cls, value: Any, name: str) -> "Length":
        """Return the length written as `value`: 512, L, 2L, 1.5L, L/2, L+50 or 2L-1.

        Raises ConfigError if `value` has any other form; `name` is the key in the message.
        """
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return cls(str(value), 0.0, value)
        match = LENGTH_PATTERN.fullmatch(str(value))
        if match is None or len(match[0]) > MAX_LENGTH_CHARACTERS:
            raise ConfigError(
                f"{name}: {value!r} is not a length; use a number of tokens (512) or a length"
                " relative to the training length L (L, 2L, L/2, L+50)"
            )
        factor = float(match["factor"] or 1) / int(match["divisor"] or 1)
        return cls(match[0], factor, int(match["offset"] or 0))

    def __str__(self) -> str:
        return self.text

    def num_tokens(self, train_length: int) -> int:
        return round(self.factor * train_length) + self.offset


@dataclass(frozen=True)
class Value:
    """A quantity of the runs that match `selector` and were trained at `train_length`.

    `row_keys` select the evaluation rows (protocol, split, ...).
    """

    quantity: Quantity
    selector: Mapping[str, Any]
    row_keys: Mapping[str, Any]
    train_length: Length
    length: Length | Literal["longest"] | None

    def __str__(self) -> str:
        """Return text such as `perplexity of rope base=10000 at 2L, sliding`, without defaults."""
        settings = dict(self.selector)
        encoding = settings.pop("encoding", "the runs")
        options = (f" {_last_part(key)}={value}" for key, value in settings.items())
        text = f"{self.quantity.name.replace('_', ' ')} of {encoding}{''.join(options)}"
        if self.length is not None:
            text += f" at {self.length}"
        if self.train_length.text != "L":
            text += f", trained at {self.train_length}"
        for key, value in self.row_keys.items():
            if value not in (None, self.quantity.protocol):
                text += f", {value}" if key == "protocol" else f", {key} {value}"
        return text

    @property
    def values(self) -> tuple["Value", ...]:
        return (self,)

    @property
    def scale(self) -> Scale:
        return self.quantity.scale

    def combine(self, numbers: Sequence[float], lengths: Sequence[int | None]) -> float:
        """Compute this side from the measured number and the evaluation length of each value."""
        return numbers[0]


@dataclass(frozen=True)
class Change:
    """The change in a value relative to a baseline: a log ratio or a difference.

    If the pair `published` (the published value and baseline) is given, the measured change is
    divided by the published one.
    """

    value: Value
    baseline: Value
    published: tuple[float, float] | None

    def __str__(self) -> str:
        text = f"change in {self.value} relative to {self.baseline}"
        if self.published is None:
            return text
        value, baseline = self.published
        return f"{text}, divided by the published change ({value:g} from {baseline:g})"

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value, self.baseline)

    @property
    def quantity(self) -> Quantity:
        return self.value.quantity

    @property
    def scale(self) -> Scale:
        if self.published is not None:
            return Scale("fraction of the published change", "difference")
        kind = "change" if self.quantity.scale.is_relative else "difference"
        return Scale(f"change in {self.quantity.scale.unit}", kind)

    def combine(self, numbers: Sequence[float], lengths: Sequence[int | None]) -> float:
        value, baseline = numbers
        if self.published is None:
            return value - baseline
        published_value, published_baseline = map(self.quantity.scale.to_scale, self.published)
        return (value - baseline) / (published_value - published_baseline)


@dataclass(frozen=True)
class Trend:
    """The least-squares slope of values or changes against log2 of length or log10 of a parameter.

    `key` is "length" or the key of the parameter; `parameters` has the parameter's value for each
    of `points`. For ratios, the slope is that of the logarithm.
    """

    key: str
    points: tuple[Value, ...] | tuple[Change, ...]
    parameters: tuple[float, ...] = ()

    def __str__(self) -> str:
        first = self.points[0]
        if self.parameters:
            axis, numbers = f"log10 {_last_part(self.key)}", [f"{x:g}" for x in self.parameters]
        else:
            axis, numbers = "log2 length", [str(point.values[0].length) for point in self.points]
        texts = [str(self._without_key(value)) for value in first.values]
        subject = (" / " if self.quantity.scale.is_relative else " - ").join(texts)
        subject = f"({subject})" if len(texts) > 1 else subject
        log = "log " if self.quantity.scale.is_relative else ""
        return f"slope of {log}{subject} against {axis} ({', '.join(numbers)})"

    def _without_key(self, value: Value) -> Value:
        """Return a value of the first point without the setting that varies along the trend.

        This is the trend's parameter or the length. A baseline keeps its length.
        """
        if self.parameters:
            settings = {key: item for key, item in value.selector.items() if key != self.key}
            return replace(value, selector=settings)
        return replace(value, length=None) if value is self.points[0].values[0] else value

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(value for point in self.points for value in point.values)

    @property
    def quantity(self) -> Quantity:
        return self.points[0].quantity

    @property
    def scale(self) -> Scale:
        log = "log " if self.quantity.scale.is_relative else ""
        step = f"factor of 10 in {self.key}" if self.parameters else "doubling of the length"
        return Scale(f"{log}{self.quantity.name} per {step}", "difference", digits=4)

    def combine(self, numbers: Sequence[float], lengths: Sequence[int | None]) -> float:
        """Return the slope; raises NoVerdictError if all lengths are the same number of tokens."""
        size = len(self.points[0].values)
        starts = range(0, len(numbers), size)
        ys = [
            point.combine(numbers[i : i + size], lengths[i : i + size])
            for i, point in zip(starts, self.points, strict=True)
        ]
        tokens = [length for i in starts if (length := lengths[i]) is not None]
        xs = [log10(x) for x in self.parameters] or [log2(n) for n in tokens]
        try:
            return linear_regression(xs, ys).slope
        except StatisticsError:
            raise NoVerdictError(
                "not comparable", f"{self}: all lengths are {tokens[0]} tokens; use different ones"
            ) from None


@dataclass(frozen=True)
class Ngram:
    """An n-gram model trained on the same tokens as the left side; the best if `order` is None."""

    order: int | None

    @property
    def name(self) -> str:
        """The name in messages, such as `the 3-gram model`."""
        return "the best n-gram model" if self.order is None else f"the {self.order}-gram model"

    def __str__(self) -> str:
        """Return the right side of a comparison, such as `that of the 3-gram model`."""
        return f"that of {self.name}"


Side = Value | Change | Trend


def _last_part(key: str) -> str:
    return key.replace("/", ".").rpartition(".")[2]
