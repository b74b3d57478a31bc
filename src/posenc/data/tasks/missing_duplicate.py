"""Missing duplicate: a string, written twice, with one letter blanked out; which letter is it?

Deletang et al. 2022 (arXiv:2207.02098, table 1: a context-sensitive task), where the alphabet has
two letters. The blank may be in either copy.

    0 1 1 0 _ 1 = | 1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.string_task import FIRST_LETTER, SEPARATOR, AlphabetTask
from posenc.data.tasks.task import Example, SeededRandom, prompt_and_answer


@dataclass(frozen=True, kw_only=True)
class MissingDuplicate(AlphabetTask):
    """Size n: a string of n letters, written twice, and one answer; 2n + 2 tokens."""

    name = "missing_duplicate"
    extra_symbols = ("_",)

    def sequence_length(self, size: int) -> int:
        return 2 * size + 2

    def generate(self, random: SeededRandom, size: int) -> Example:
        string = np.tile(FIRST_LETTER + random.integers(self.alphabet_size, size), 2)
        position = random.integer(2 * size)
        missing = string[position]
        string[position] = FIRST_LETTER + self.alphabet_size
        return prompt_and_answer(np.append(string, SEPARATOR), np.array([missing]))
