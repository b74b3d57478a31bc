"""The last `k` positions of consecutive windows, with at least length - k tokens of context.

Longer windows score fewer and other tokens. The tail, which is shorter than a window, is left out.
"""

import numpy as np
from numpy.typing import NDArray


def last_k(tokens: int, length: int, k: int) -> NDArray[np.int64]:
    """Return the spans of whole windows of `length` whose last `k` <= length targets are scored."""
    stop = np.arange(length, tokens + 1, length)
    return np.stack([stop - length, stop - k, stop], axis=1)
