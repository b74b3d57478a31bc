"""One split of a corpus as tokens."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TokenArray:
    """One split: `tokens` [N] of unsigned integers, and what its text counted.

    `words` are separated by white space, `bytes` are those of UTF-8. The token before the first
    one is `end_of_text`.
    """

    tokens: np.ndarray
    words: int
    bytes: int
    documents: int
    end_of_text: int
