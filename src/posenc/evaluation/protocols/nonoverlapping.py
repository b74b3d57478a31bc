"""Consecutive windows in which every token is scored (Press et al. 2022, section 2.2).

Equivalent to fairseq's `--context-window 0` with `--sample-break-mode none`.
"""

import numpy as np
from numpy.typing import NDArray


def nonoverlapping(tokens: int, length: int) -> NDArray[np.int64]:
    """Return the spans of windows of `length` tokens and of the shorter tail."""
    start = np.arange(0, tokens, length)
    return np.stack([start, start, np.minimum(start + length, tokens)], axis=1)
