"""Units of numbers, and the scales on which they are compared."""

import math
from dataclasses import dataclass
from typing import Literal

MAX_LOG = 230.0
"""Arguments of `exp` and `expm1` are limited to MAX_LOG; those of `exp` are at least -MAX_LOG."""
OVERFLOW = 1e99
"""Perplexities above this are from diverged models and may be clamped; see `MAX_LOG`."""


def exp(number: float) -> float:
    """Return e^number, clamped because the perplexity of a diverged model may overflow."""
    return math.exp(max(-MAX_LOG, min(number, MAX_LOG)))


def expm1(number: float) -> float:
    """Return e^number - 1, with the same upper bound on `number`."""
    return math.expm1(min(number, MAX_LOG))


def format_number(value: float) -> str:
    """Format a number as 1.00 below 1,000, as 1000 below a million and as 1.00e+06 above that."""
    if value >= OVERFLOW:
        return f"> {OVERFLOW:.0e}"
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}"


@dataclass(frozen=True)
class Scale:
    """The unit of a number, and the scale on which two such numbers are compared.

    A "ratio" (a positive number such as a perplexity) is compared by its logarithm. A "change" is a
    relative change: -0.05 is a ratio of 0.95, which is compared by its logarithm. Other numbers are
    compared by their "difference". `digits` is the number of decimals shown for small numbers.
    """

    unit: str
    kind: Literal["ratio", "change", "difference"]
    digits: int = 3

    @property
    def is_relative(self) -> bool:
        """Whether differences and margins are relative: 0.01 is 1%."""
        return self.kind != "difference"

    @property
    def lower_limit(self) -> float:
        """The exclusive lower bound of numbers in this unit."""
        return {"ratio": 0.0, "change": -1.0, "difference": -math.inf}[self.kind]

    def to_scale(self, value: float) -> float:
        """Convert a number in `unit` to the comparison scale."""
        if self.kind == "ratio":
            return math.log(value)
        return math.log1p(value) if self.kind == "change" else value

    def to_unit(self, number: float) -> float:
        """Convert a number on the comparison scale to `unit`."""
        if self.kind == "ratio":
            return exp(number)
        return expm1(number) if self.kind == "change" else number

    def difference(self, difference: float) -> float:
        """Convert a difference on the comparison scale to ratio - 1 if the scale is relative."""
        return expm1(difference) if self.is_relative else difference

    def margin(self, margin: float) -> float:
        """Convert a margin in a claim to the comparison scale."""
        return math.log1p(margin) if self.is_relative else margin

    def multiply(self, number: float, factor: float) -> float:
        """Return a number on the comparison scale multiplied by `factor`.

        For a ratio, `factor` multiplies the ratio itself; for a relative change, the log ratio.
        """
        return number + math.log(factor) if self.kind == "ratio" else number * factor
