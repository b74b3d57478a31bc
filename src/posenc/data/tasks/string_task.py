"""Tasks over a finite alphabet, including tasks that transform a random string."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from posenc.data.tasks.task import Example, Ints, SeededRandom, Task, prompt_and_answer

SEPARATOR = 1
"""The id of the symbol between prompt and answer."""
FIRST_LETTER = 2
"""The id of the first letter of the alphabet."""


def alphabet_symbols(alphabet_size: int, *extra: str) -> tuple[str, ...]:
    """Return the BOS symbol, the separator, the letters (as numbers) and `extra` symbols."""
    return ("<begin>", "=", *map(str, range(alphabet_size)), *extra)


@dataclass(frozen=True, kw_only=True)
class AlphabetTask(Task):
    """A task with `alphabet_size` letters (at least 2) and `extra_symbols`."""

    extra_symbols: ClassVar[tuple[str, ...]] = ()
    alphabet_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alphabet_size < 2:
            raise ValueError(f"alphabet_size={self.alphabet_size} must be at least 2")

    @property
    def symbols(self) -> tuple[str, ...]:
        return alphabet_symbols(self.alphabet_size, *self.extra_symbols)

    @property
    def chance(self) -> float:
        return 1 / self.alphabet_size


@dataclass(frozen=True, kw_only=True)
class StringTask(AlphabetTask):
    """A task whose prompt is a string of `size` uniformly random letters and the separator."""

    @abstractmethod
    def answer(self, string: Ints) -> Ints:
        """Return the answer to `string`; both are arrays of ids."""

    def generate(self, random: SeededRandom, size: int) -> Example:
        string = FIRST_LETTER + random.integers(self.alphabet_size, size)
        return prompt_and_answer(np.append(string, SEPARATOR), self.answer(string))
