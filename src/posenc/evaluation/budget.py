"""How much of a split is measured, where not all of it can be."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig

from posenc.evaluation.windows import Windows

GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Budget:
    """At most so many `tokens` scored, or `seconds` after which no further batch is read, for
    each length of each protocol; one window at least. None for no limit."""

    seconds: float | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, config: DictConfig) -> "Budget":
        return cls(config.evaluation.budget_seconds, config.evaluation.budget_tokens)

    def order(self, windows: Windows) -> NDArray[np.int64]:
        """The numbers of the windows to measure, in the order in which to do so.

        Those that a budget leaves are spread evenly over the split: the fractional parts of
        multiples of the golden section fall into its gaps, whenever one stops (Weyl 1916).
        """
        numbers = np.arange(len(windows.lengths))
        if self.tokens is not None and windows.scored.sum() > self.tokens:
            spread = _spread(len(numbers))
            fitting = np.cumsum(windows.scored[spread]) <= self.tokens
            fitting[0] = True
            numbers = np.sort(spread[fitting])
        return numbers if self.seconds is None else numbers[_spread(len(numbers))]

    def spent(self, seconds: float) -> bool:
        return self.seconds is not None and seconds >= self.seconds


def _spread(count: int) -> NDArray[np.int64]:
    """The numbers below `count`, any first ones of which lie evenly among all."""
    return np.argsort(np.argsort((0.5 + np.arange(count) * GOLDEN) % 1, kind="stable"))
