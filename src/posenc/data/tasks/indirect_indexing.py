"""Indirect indexing: which letter is at a given distance left or right of a given letter?

Gopalakrishnan et al. 2025 (arXiv:2509.10534, section 4): the model has to find one letter by its
content and then another by its position relative to the first. Here the given letter occurs once in
the string; other letters may occur several times.

    3 0 2 5 0 1 = 5 -2 | 0
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.string_task import FIRST_LETTER, SEPARATOR, alphabet_symbols
from posenc.data.tasks.task import Example, SeededRandom, Task, prompt_and_answer


@dataclass(frozen=True, kw_only=True)
class IndirectIndexing(Task):
    """Size n: n + 1 letters, separator, given letter, shift and answer; n + 5 tokens.

    The shift is from -`shift` to `shift`, but not 0.
    """

    name = "indirect_indexing"
    alphabet_size: int
    shift: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alphabet_size < 3 or self.shift < 1:
            raise ValueError(
                f"alphabet_size={self.alphabet_size} must be at least 3, and"
                f" shift={self.shift} must be at least 1"
            )

    @property
    def symbols(self) -> tuple[str, ...]:
        return alphabet_symbols(self.alphabet_size, *(f"{shift:+d}" for shift in self._shifts()))

    @property
    def chance(self) -> float:
        """Chance accuracy: the answer is one of the other letters, as the given one occurs once."""
        return 1 / (self.alphabet_size - 1)

    def _shifts(self) -> list[int]:
        return [shift for shift in range(-self.shift, self.shift + 1) if shift]

    def sequence_length(self, size: int) -> int:
        return size + 5

    def generate(self, random: SeededRandom, size: int) -> Example:
        position, letter = random.integer(size + 1), random.integer(self.alphabet_size)
        others = random.integers(self.alphabet_size - 1, size + 1)
        string = FIRST_LETTER + others + (others >= letter)
        string[position] = FIRST_LETTER + letter
        shifts = self._shifts()
        valid = [i for i, shift in enumerate(shifts) if 0 <= position + shift <= size]
        chosen = valid[random.integer(len(valid))]
        question = [SEPARATOR, FIRST_LETTER + letter, FIRST_LETTER + self.alphabet_size + chosen]
        answer = string[position + shifts[chosen]]
        return prompt_and_answer(np.append(string, question), np.array([answer]))
