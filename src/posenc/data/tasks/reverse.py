"""Reverse string: a string, then its letters from the last to the first.

Deletang et al. 2022 (2207.02098, table 1: a deterministic context-free task), there with two
letters.

    0 1 1 = | 1 1 0
"""

from dataclasses import dataclass

from posenc.data.tasks.draws import Ints
from posenc.data.tasks.strings import StringTask


@dataclass(frozen=True, kw_only=True)
class Reverse(StringTask):
    """Size n: n letters, reversed; 2n + 1 tokens."""

    name = "reverse"

    def tokens(self, size: int) -> int:
        return 2 * size + 1

    def answer(self, string: Ints) -> Ints:
        return string[::-1]
