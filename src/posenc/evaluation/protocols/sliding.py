"""A window advances by `stride` tokens and scores the new ones (Press et al. 2022, appendix B).

The targets from b * stride to (b + 1) * stride - 1 are scored in one window, the first of them with
length - stride + 1 tokens of context, or fewer near the start of the text: fairseq's
`--context-window C` with C = length - stride. All tokens whose context reaches the start of the
text are scored in one window. stride=1 is the paper's S = 1; stride=length is nonoverlapping.
"""

import numpy as np
from numpy.typing import NDArray


def sliding(tokens: int, length: int, stride: int) -> NDArray[np.int64]:
    """Return the spans of windows of `length` tokens that advance by `stride` tokens."""
    first = np.concatenate(([0], np.arange(length - length % stride, tokens, stride)))
    stop = np.append(first[1:], tokens)
    return np.stack([np.maximum(first - (length - stride), 0), first, stop], axis=1)
