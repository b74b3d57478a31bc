"""Duplicate string: a string, then the same string twice.

Deletang et al. 2022 (arXiv:2207.02098, table 1: a context-sensitive task), where the alphabet has
two letters.

    0 1 1 = | 0 1 1 0 1 1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.string_task import StringTask
from posenc.data.tasks.task import Ints


@dataclass(frozen=True, kw_only=True)
class Duplicate(StringTask):
    """Size n: a prompt of n letters and an answer of 2n letters; 3n + 1 tokens."""

    name = "duplicate"

    def sequence_length(self, size: int) -> int:
        return 3 * size + 1

    def answer(self, string: Ints) -> Ints:
        return np.tile(string, 2)
