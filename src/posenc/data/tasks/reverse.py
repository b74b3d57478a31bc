"""Reverse string: a string, then its letters in reverse order.

Deletang et al. 2022 (arXiv:2207.02098, table 1: a deterministic context-free task), where the
alphabet has two letters.

    0 1 1 = | 1 1 0 (the answer follows `|`, which is not a token)
"""

from dataclasses import dataclass

from posenc.data.tasks.string_task import StringTask
from posenc.data.tasks.task import Ints


@dataclass(frozen=True, kw_only=True)
class Reverse(StringTask):
    """Size n: a string of n letters, reversed; 2n + 1 tokens."""

    name = "reverse"

    def sequence_length(self, size: int) -> int:
        return 2 * size + 1

    def answer(self, string: Ints) -> Ints:
        return string[::-1]
