"""Even pairs: is the number of places where 0 follows 1, or 1 follows 0, even?

Deletang et al. 2022 (2207.02098, table 1: a regular task). It is even exactly where the first
letter is the last.

    0 1 1 0 = | 0        two such places: even, answered 0
    0 1 1 1 = | 1        one: odd, answered 1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Draws
from posenc.data.tasks.letters import LETTERS, SEPARATOR, symbols_of
from posenc.data.tasks.task import Example, Task, answered


@dataclass(frozen=True, kw_only=True)
class EvenPairs(Task):
    """Size n: n letters out of two, one answer; n + 2 tokens."""

    name = "even_pairs"

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_of(2)

    def tokens(self, size: int) -> int:
        return size + 2

    def draw(self, draws: Draws, size: int) -> Example:
        string = LETTERS + draws.below(2, size)
        odd = np.not_equal(string[:1], string[-1:])
        return answered(np.append(string, SEPARATOR), LETTERS + odd.astype(np.int64))
