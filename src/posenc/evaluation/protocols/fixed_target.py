"""The same targets at every length, with more and more context.

The targets are the last tokens of each complete window of the longest evaluation length. At a
shorter length T they are the last tokens of a window of T tokens. The scored tokens do not depend
on T, so a loss that decreases with T is due to the longer context alone.
"""

import numpy as np
from numpy.typing import NDArray


def fixed_target(tokens: int, length: int, targets: int, longest_length: int) -> NDArray[np.int64]:
    """Return the spans of windows of `length` tokens.

    They end where the windows of `longest_length` end, and their last `targets` targets are scored.
    """
    stop = np.arange(longest_length, tokens + 1, longest_length)
    return np.stack([stop - length, stop - targets, stop], axis=1)
