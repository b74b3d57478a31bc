"""Duplicate string: a string, then the string twice.

Deletang et al. 2022 (2207.02098, table 1: a context-sensitive task), there with two letters.

    0 1 1 = | 0 1 1 0 1 1
"""

from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Ints
from posenc.data.tasks.strings import StringTask


@dataclass(frozen=True, kw_only=True)
class Duplicate(StringTask):
    """Size n: n letters, twice; 3n + 1 tokens."""

    name = "duplicate"

    def tokens(self, size: int) -> int:
        return 3 * size + 1

    def answer(self, string: Ints) -> Ints:
        return np.tile(string, 2)
