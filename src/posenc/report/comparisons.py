"""The comparisons of claims: when an interval of differences satisfies one, when it violates it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "fails", "undecided"]
Test = Callable[[float, float, float], bool]


@dataclass(frozen=True)
class Comparison:
    """`holds` and `fails` take the ends of an interval of left - right, and a margin of 0 or more.

    An interval that satisfies neither includes the margin.
    """

    name: str
    phrase: str
    holds: Test
    fails: Test

    def outcome(self, low: float, high: float, margin: float) -> Outcome:
        if self.holds(low, high, margin):
            return "holds"
        return "fails" if self.fails(low, high, margin) else "undecided"


COMPARISONS = {
    comparison.name: comparison
    for comparison in (
        Comparison(
            "below",
            "is below",
            lambda low, high, margin: high < -margin,
            lambda low, high, margin: low >= -margin,
        ),
        Comparison(
            "above",
            "is above",
            lambda low, high, margin: low > margin,
            lambda low, high, margin: high <= margin,
        ),
        Comparison(
            "at_most",
            "is at most",
            lambda low, high, margin: high <= margin,
            lambda low, high, margin: low > margin,
        ),
        Comparison(
            "at_least",
            "is at least",
            lambda low, high, margin: low >= -margin,
            lambda low, high, margin: high < -margin,
        ),
        Comparison(
            "equal",
            "equals",
            lambda low, high, margin: -margin <= low and high <= margin,
            lambda low, high, margin: low > margin or high < -margin,
        ),
    )
}
