"""Missing duplicate: a string twice with one letter blanked; which letter is missing?

Deletang et al. 2022 (2207.02098, table 1: a context-sensitive task), there with two letters. The
blank may be in either copy.

    0 1 1 0 _ 1 = | 1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Draws
from posenc.data.tasks.letters import LETTERS, SEPARATOR, LetterTask
from posenc.data.tasks.task import Example, answered


@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(LetterTask):
    """Size n: n letters twice, one answer; 2n + 2 tokens."""

    name = "missing_duplicate"
    more = ("_",)

    def tokens(self, size: int) -> int:
        return 2 * size + 2

    def draw(self, draws: Draws, size: int) -> Example:
        twice = np.tile(LETTERS + draws.below(self.letters, size), 2)
        place = draws.one(2 * size)
        missing = twice[place]
        twice[place] = LETTERS + self.letters
        return answered(np.append(twice, SEPARATOR), np.array([missing]))
