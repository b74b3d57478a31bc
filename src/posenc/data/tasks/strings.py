"""Tasks that ask something of a random string."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Draws, Ints
from posenc.data.tasks.task import Example, Task, answered

SEPARATOR, LETTERS = 1, 2
"""The id of the symbol between prompt and answer, and that of the first letter."""


def symbols_of(letters: int, *more: str) -> tuple[str, ...]:
    """The beginning, the separator, the letters by number, and `more`."""
    return ("<begin>", "=", *map(str, range(letters)), *more)


@dataclass(frozen=True, kw_only=True)
class StringTask(Task):
    """A string of `size` letters, each uniform among `letters`, the separator, and the answer."""

    letters: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.letters < 2:
            raise ValueError(f"letters={self.letters} must be 2 or more")

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_of(self.letters)

    @abstractmethod
    def answer(self, string: Ints) -> Ints:
        """The answer to a string of ids."""

    def draw(self, draws: Draws, size: int) -> Example:
        string = LETTERS + draws.below(self.letters, size)
        return answered(np.append(string, SEPARATOR), self.answer(string))
