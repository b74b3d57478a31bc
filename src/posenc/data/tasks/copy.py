"""Copy: a string, then the same string (Kazemnejad et al. 2023, arXiv:2305.19466, section 3).

0 3 1 = | 0 3 1 (the answer follows `|`, which is not a token)
"""

from dataclasses import dataclass

from posenc.data.tasks.string_task import StringTask
from posenc.data.tasks.task import Ints


@dataclass(frozen=True, kw_only=True)
class Copy(StringTask):
    """Size n: a string of n letters, copied; 2n + 1 tokens."""

    name = "copy"

    def sequence_length(self, size: int) -> int:
        return 2 * size + 1

    def answer(self, string: Ints) -> Ints:
        return string
