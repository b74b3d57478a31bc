"""Outcomes of clauses and claims, and how several are combined into one."""

from collections.abc import Iterable
from typing import Literal, get_args

Outcome = Literal[
    "fails",
    "premise not met",
    "not comparable",
    "not measured",
    "too few seeds",
    "undecided",
    "holds",
]
PRECEDENCE: tuple[Outcome, ...] = get_args(Outcome)
"""Outcomes, highest precedence first; see `combine`."""
COMPARISONS = {
    "below": "is below",
    "above": "is above",
    "at_most": "is at most",
    "at_least": "is at least",
    "equal": "equals",
}
"""Name of a comparison in YAML -> its text in a report."""
NEEDS_MARGIN = ("at_most", "at_least", "equal")


class NoVerdictError(Exception):
    """A clause cannot be judged; the message gives the reason and often a command that fixes it."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome
        self.reason = reason


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the combined outcome of one or more parts: a claim's clauses or training lengths.

    The whole fails if any part fails, and holds if all parts hold. Otherwise, its outcome is the
    one that comes first in `PRECEDENCE`, where "too few seeds" and "undecided", which more seeds
    may resolve, come after the other problems.
    """
    return min(outcomes, key=PRECEDENCE.index)


def compare(comparison: str, low: float, high: float, margin: float) -> Outcome:
    """Return the outcome of a comparison, given the interval [low, high] of left - right.

    `margin` must not be negative. The outcome is undecided if the bound lies inside the interval:
    -margin for "below" and "at_least", margin for "above" and "at_most", either one for "equal".
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
