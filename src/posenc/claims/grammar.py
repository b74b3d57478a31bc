"""What a claim says, parsed: a left value, a comparison, a right value, where, how surely."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from posenc.claims.comparisons import Comparison
from posenc.claims.lengths import Length
from posenc.claims.quantities import Quantity


@dataclass(frozen=True)
class Value:
    """A quantity of the runs whose configuration agrees with `of`, trained at `train_length`.

    `rows` are the keys of the evaluation rows that are read (protocol, split, ...).
    """

    quantity: Quantity
    of: Mapping[str, Any]
    rows: Mapping[str, Any]
    train_length: Length
    length: Length | Literal["longest"] | None
    times: float = 1.0


@dataclass(frozen=True)
class TrainLengths:
    """Which training lengths L a clause is about: those given, or all within the limits."""

    given: tuple[int, ...] = ()
    limits: tuple[tuple[Comparison, int], ...] = ()

    def among(self, there: Iterable[int]) -> list[int]:
        if self.given:
            return sorted(self.given)
        at = (n for n in set(there) if all(c.holds(n - m, n - m, 0) for c, m in self.limits))
        return sorted(at)


@dataclass(frozen=True)
class Clause:
    """One comparison. `right` is a value, a length in tokens, or a number in the left's unit."""

    left: Value
    comparison: Comparison
    right: Value | Length | float
    trained: TrainLengths
    margin: float
    confidence: float


@dataclass(frozen=True)
class Claim:
    """A sentence, and the clauses that must all hold for it to hold."""

    says: str
    clauses: tuple[Clause, ...]
    published: str | None
