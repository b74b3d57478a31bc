"""Indirect indexing: which letter stands so many places to the left or right of this one?

Gopalakrishnan et al. 2025 (2509.10534, section 4): what must be found by content, its neighbour by
position. Here the letter that is named stands in the string once, the others may come again.

    3 0 2 5 0 1 = 5 -2 | 0
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Draws
from posenc.data.tasks.letters import LETTERS, SEPARATOR, symbols_of
from posenc.data.tasks.task import Example, Task, answered


@dataclass(frozen=True, kw_only=True)
class IndirectIndexing(Task):
    """Size n: n + 1 letters, one of them, a shift of `shift` at most, one answer; n + 5 tokens."""

    name = "indirect_indexing"
    letters: int
    shift: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.letters < 3 or self.shift < 1:
            raise ValueError(
                f"letters={self.letters} must be 3 or more and shift={self.shift} 1 or more"
            )

    @property
    def symbols(self) -> tuple[str, ...]:
        shifts = (f"{shift:+d}" for shift in self._shifts())
        return symbols_of(self.letters, *shifts)

    def _shifts(self) -> list[int]:
        return [shift for shift in range(-self.shift, self.shift + 1) if shift]

    def tokens(self, size: int) -> int:
        return size + 5

    def draw(self, draws: Draws, size: int) -> Example:
        place, source = draws.one(size + 1), draws.one(self.letters)
        others = draws.below(self.letters - 1, size + 1)
        string = LETTERS + others + (others >= source)
        string[place] = LETTERS + source
        shifts = self._shifts()
        inside = [i for i, shift in enumerate(shifts) if 0 <= place + shift <= size]
        chosen = inside[draws.one(len(inside))]
        question = [SEPARATOR, LETTERS + source, LETTERS + self.letters + chosen]
        answer = string[place + shifts[chosen]]
        return answered(np.append(string, question), np.array([answer]))
