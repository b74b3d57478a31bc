"""Claims: statements about measured values in an experiment's YAML, which the report judges.

A claim has one or more clauses. Each clause compares a left value with a right value:
`perplexity of alibi at 2L is below perplexity of alibi at L`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from posenc.config.errors import ConfigError
from posenc.report.quantities import Quantity

CONFIDENCE = 0.95
MIN_SEEDS = 3
"""The minimum number of seeds for a confidence interval and for a verdict on a claim."""
LONGEST = "longest"
LENGTH_PATTERN = re.compile(
    r"(?P<factor>\d+(?:\.\d+)?)?L(?:/(?P<divisor>[1-9]\d*))?(?P<offset>[+-]\d+)?"
)
COMPARISONS = {
    "below": "is below",
    "above": "is above",
    "at_most": "is at most",
    "at_least": "is at least",
    "equal": "equals",
}
"""Name of a comparison in YAML -> its text in a report."""
Outcome = Literal["holds", "fails", "undecided"]


def compare(comparison: str, low: float, high: float, margin: float) -> Outcome:
    """Return the outcome of a comparison, given the interval [low, high] of left - right.

    The outcome is undecided if the interval includes the margin, which must not be negative.
    """
    below, not_below = high < -margin, low >= -margin
    above, not_above = low > margin, high <= margin
    holds, fails = {
        "below": (below, not_below),
        "above": (above, not_above),
        "at_most": (not_above, above),
        "at_least": (not_below, below),
        "equal": (not_below and not_above, below or above),
    }[comparison]
    return "holds" if holds else "fails" if fails else "undecided"


@dataclass(frozen=True)
class Length:
    """A length in tokens: `factor` times the training length plus `offset`, written as `text`."""

    text: str
    factor: float
    offset: int

    @classmethod
    def parse(cls, value: Any, name: str) -> "Length":
        """Return the length written as `value`: 512, L, 2L, 1.5L, L/2, L+50 or 2L-1.

        Raises ConfigError if `value` has another form; `name` is the key in the message.
        """
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return cls(str(value), 0.0, value)
        match = LENGTH_PATTERN.fullmatch(str(value))
        if match is None:
            raise ConfigError(
                f"{name}: {value!r} is not a length; give tokens (512) or an expression in the"
                " training length (L, 2L, L/2, L+50)"
            )
        factor = float(match["factor"] or 1) / int(match["divisor"] or 1)
        return cls(match[0], factor, int(match["offset"] or 0))

    def tokens(self, train_length: int) -> int:
        return round(self.factor * train_length) + self.offset


@dataclass(frozen=True)
class Value:
    """A quantity of the runs that match `selector` and were trained at `train_length`.

    `row_keys` select the evaluation rows (protocol, split, ...). The value is multiplied by
    `times`.
    """

    quantity: Quantity
    selector: Mapping[str, Any]
    row_keys: Mapping[str, Any]
    train_length: Length
    length: Length | Literal["longest"] | None
    times: float = 1.0

    def __str__(self) -> str:
        """Such as `perplexity of rope base=10000 at 2L, sliding`; defaults are omitted."""
        settings = dict(self.selector)
        encoding = settings.pop("encoding", "the runs")
        names = (key.replace("/", ".").rpartition(".")[2] for key in settings)
        options = (f" {name}={value}" for name, value in zip(names, settings.values(), strict=True))
        text = f"{self.quantity.name.replace('_', ' ')} of {encoding}{''.join(options)}"
        if self.length is not None:
            text += f" at {self.length.text if isinstance(self.length, Length) else self.length}"
        if self.train_length.text != "L":
            text += f", trained at {self.train_length.text}"
        for key, value in self.row_keys.items():
            if value not in (None, self.quantity.protocol):
                text += f", {value}" if key == "protocol" else f", {key} {value}"
        return text


@dataclass(frozen=True)
class TrainLengths:
    """The training lengths L at which a clause is judged: a list, or all lengths within limits."""

    listed: tuple[int, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()

    def select(self, available: Iterable[int]) -> list[int]:
        if self.listed:
            return sorted(self.listed)
        return sorted(
            n
            for n in set(available)
            if all(compare(name, n - limit, n - limit, 0) == "holds" for name, limit in self.limits)
        )


@dataclass(frozen=True)
class Clause:
    """One comparison; `right` is a value, a length, or a number in the unit of `left`."""

    left: Value
    comparison: str
    right: Value | Length | float
    train_lengths: TrainLengths
    margin: float
    confidence: float

    def __str__(self) -> str:
        right = self.right
        if isinstance(right, Value):
            text = str(right) if right.times == 1 else f"{right.times:g} times {right}"
        else:
            text = right.text if isinstance(right, Length) else f"{right:g}"
        as_ratio = self.left.quantity.compared_as_ratio
        margin = f"{100 * self.margin:g}%" if as_ratio else f"{self.margin:g}"
        end = f" (margin {margin})" if self.margin else ""
        return f"{self.left} {COMPARISONS[self.comparison]} {text}{end}"


@dataclass(frozen=True)
class Claim:
    """A statement that holds if all of its clauses hold.

    `published` is the corresponding published result, if the YAML has one.
    """

    statement: str
    clauses: tuple[Clause, ...]
    published: str | None
