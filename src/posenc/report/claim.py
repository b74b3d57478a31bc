"""Claims: statements about measured values that an experiment's YAML makes and the report judges.

A claim is one clause or several. A clause compares a left value with a right one:
`perplexity of alibi at 2L is below perplexity of alibi at L`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from posenc.config.errors import ConfigError
from posenc.report.comparisons import Comparison
from posenc.report.quantities import Quantity

CONFIDENCE = 0.95
MIN_SEEDS = 3
"""The fewest seeds that have an interval."""
LONGEST = "longest"
LENGTH = re.compile(r"(?P<factor>\d+(?:\.\d+)?)?L(?:/(?P<divisor>[1-9]\d*))?(?P<plus>[+-]\d+)?")


@dataclass(frozen=True)
class Length:
    """A length in tokens: `factor` times the training length plus `plus`; `text` as written."""

    text: str
    factor: float
    plus: int

    @classmethod
    def parse(cls, value: Any, name: str) -> "Length":
        """Return the length of 512, L, 2L, 1.5L, L/2, L+50 or 2L-1; else raise ConfigError."""
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return cls(str(value), 0.0, value)
        match = LENGTH.fullmatch(str(value))
        if match is None:
            raise ConfigError(
                f"{name}: {value!r} is not a length; give tokens (512) or an expression in the"
                " training length (L, 2L, L/2, L+50)"
            )
        factor = float(match["factor"] or 1) / int(match["divisor"] or 1)
        return cls(match[0], factor, int(match["plus"] or 0))

    def tokens(self, train_length: int) -> int:
        return round(self.factor * train_length) + self.plus


@dataclass(frozen=True)
class Value:
    """A quantity of the runs whose configuration matches `selector`, trained at `train_length`.

    `row_keys` select the evaluation rows (protocol, split, ...). `times` multiplies the value.
    """

    quantity: Quantity
    selector: Mapping[str, Any]
    row_keys: Mapping[str, Any]
    train_length: Length
    length: Length | Literal["longest"] | None
    times: float = 1.0

    def __str__(self) -> str:
        """As `perplexity of rope base=10000 at 2L, sliding`, without what is the default."""
        settings = dict(self.selector)
        encoding = str(settings.pop("encoding", "the runs"))
        names = (key.replace("/", ".").rpartition(".")[2] for key in settings)
        pairs = zip(names, settings.values(), strict=True)
        subject = " ".join([encoding, *(f"{name}={value}" for name, value in pairs)])
        length = self.length.text if isinstance(self.length, Length) else self.length
        trained = self.train_length.text
        shown = {k: v for k, v in self.row_keys.items() if v not in (None, self.quantity.protocol)}
        return "".join(
            [
                f"{self.quantity.name.replace('_', ' ')} of {subject}",
                f" at {length}" if length else "",
                "" if trained == "L" else f", trained at {trained}",
                *(f", {v}" if k == "protocol" else f", {k} {v}" for k, v in shown.items()),
            ]
        )


@dataclass(frozen=True)
class TrainLengths:
    """The training lengths L that a clause is about: those listed, or all within the limits."""

    listed: tuple[int, ...] = ()
    limits: tuple[tuple[Comparison, int], ...] = ()

    def select(self, available: Iterable[int]) -> list[int]:
        if self.listed:
            return sorted(self.listed)
        within = (
            n for n in set(available) if all(c.holds(n - m, n - m, 0) for c, m in self.limits)
        )
        return sorted(within)


@dataclass(frozen=True)
class Clause:
    """One comparison. `right` is a value, a length in tokens, or a number in the left's unit."""

    left: Value
    comparison: Comparison
    right: Value | Length | float
    train_lengths: TrainLengths
    margin: float
    confidence: float

    def __str__(self) -> str:
        right, ratio = self.right, self.left.quantity.ratio
        if isinstance(right, Value):
            text = str(right) if right.times == 1 else f"{right.times:g} times {right}"
        else:
            text = right.text if isinstance(right, Length) else f"{right:g}"
        margin = f"{100 * self.margin:g}%" if ratio else f"{self.margin:g}"
        end = f" (margin {margin})" if self.margin else ""
        return f"{self.left} {self.comparison.phrase} {text}{end}"


@dataclass(frozen=True)
class Claim:
    """A statement, and the clauses that must all hold for it to hold."""

    statement: str
    clauses: tuple[Clause, ...]
    published: str | None
