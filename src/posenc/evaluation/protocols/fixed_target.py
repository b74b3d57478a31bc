"""The same targets at every length, with more and more context.

The targets are the last tokens of each whole window of the longest evaluation length. At a shorter
length T they are the last tokens of a window of T tokens. The scored tokens do not depend on T, so
a loss that falls with T is due to the longer context alone.
"""

import numpy as np
from numpy.typing import NDArray


def fixed_target(tokens: int, length: int, targets: int, longest: int) -> NDArray[np.int64]:
    """Return the spans of windows of `length` <= `longest` that end where those of `longest` end.

    The last `targets` <= length targets of each are scored.
    """
    stop = np.arange(longest, tokens + 1, longest)
    return np.stack([stop - length, stop - targets, stop], axis=1)
