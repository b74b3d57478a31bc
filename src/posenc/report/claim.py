"""Claims in an experiment's YAML: statements about measured values, which the report judges.

A claim has one or more clauses. Each clause compares a left side with a right side:
`perplexity of alibi at 2L is below perplexity of alibi at L`. Premises are claims, too.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from posenc.report.claim_sides import Change, Length, Ngram, Side, Trend, Value
from posenc.report.outcome import COMPARISONS, compare
from posenc.report.scale import Scale


@dataclass(frozen=True)
class TrainLengths:
    """The training lengths L at which a clause is judged: those listed, or all within limits."""

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
    """A comparison of `left` with another side, an n-gram model, a length or a number.

    A number is in the unit of `left`. If `right` is a side, it is multiplied by `times`.
    """

    left: Side
    comparison: str
    right: Side | Ngram | Length | float
    times: float
    train_lengths: TrainLengths
    margin: float
    confidence: float

    @property
    def scale(self) -> Scale:
        return self.left.scale

    @property
    def interval_confidence(self) -> float:
        """The confidence level of the two-sided interval.

        `equal` is judged by two one-sided tests (TOST), each at level a = 1 - `confidence`. Both
        reject if the interval with confidence 1 - 2a (90% if a is 5%) lies within the margins.
        """
        return round(2 * self.confidence - 1, 12) if self.comparison == "equal" else self.confidence

    @property
    def values(self) -> tuple[Value, ...]:
        right = self.right.values if isinstance(self.right, Value | Change | Trend) else ()
        return (*self.left.values, *right)

    def __str__(self) -> str:
        times = "" if self.times == 1 else f"{self.times:g} times "
        right = f"{times}{self.right}"
        if isinstance(self.right, float):
            percent = self.scale.kind == "change"
            right = f"{100 * self.right:+g}%" if percent else f"{self.right:g}"
        notes = [f"margin {self._margin_text}"] if self.margin else []
        if self.comparison == "equal":
            notes.append(f"two one-sided tests at {100 * (1 - self.confidence):.3g}%")
        suffix = f" ({', '.join(notes)})" if notes else ""
        return f"{self.left} {COMPARISONS[self.comparison]} {right}{suffix}"

    @property
    def _margin_text(self) -> str:
        return f"{100 * self.margin:g}%" if self.scale.is_relative else f"{self.margin:g}"


@dataclass(frozen=True)
class Claim:
    """A statement that holds if all of its clauses hold.

    `published` is the corresponding published result, if the YAML has one.
    """

    statement: str
    clauses: tuple[Clause, ...]
    published: str | None
