"""Even pairs: is the number of adjacent pairs 01 and 10 even?

Deletang et al. 2022 (arXiv:2207.02098, table 1: a regular task). The number is even if and only if
the first letter equals the last.

    0 1 1 0 = | 0        two such pairs: even, answer 0
    0 1 1 1 = | 1        one such pair: odd, answer 1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.string_task import FIRST_LETTER, SEPARATOR, alphabet_symbols
from posenc.data.tasks.task import Example, SeededRandom, Task, prompt_and_answer


@dataclass(frozen=True, kw_only=True)
class EvenPairs(Task):
    """Size n: n letters of a two-letter alphabet and one answer; n + 2 tokens."""

    name = "even_pairs"

    @property
    def symbols(self) -> tuple[str, ...]:
        return alphabet_symbols(2)

    @property
    def chance(self) -> float:
        return 1 / 2

    def sequence_length(self, size: int) -> int:
        return size + 2

    def generate(self, random: SeededRandom, size: int) -> Example:
        string = FIRST_LETTER + random.integers(2, size)
        odd = np.not_equal(string[:1], string[-1:])
        return prompt_and_answer(np.append(string, SEPARATOR), FIRST_LETTER + odd.astype(np.int64))
