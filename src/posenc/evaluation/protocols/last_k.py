"""The last `k` positions of consecutive windows, with more than length - k tokens of context.

Different lengths score different tokens, and longer windows score fewer. The tail, which is shorter
than a window, is left out.
"""

import numpy as np
from numpy.typing import NDArray


def last_k(tokens: int, length: int, k: int) -> NDArray[np.int64]:
    """Return the spans of windows of `length` tokens; the last `k` targets of each are scored."""
    stop = np.arange(length, tokens + 1, length)
    return np.stack([stop - length, stop - k, stop], axis=1)
