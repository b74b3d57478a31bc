"""The last `k` positions of each non-overlapping window, with length - k tokens of context or more.

Windows move on by their length, so that longer windows score fewer tokens, and other ones; what is
short of a window at the end of the stream is left out.
"""

import numpy as np
from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.evaluation.windows import Spans, StreamWindows


def last_k(data: Dataset, config: DictConfig, length: int) -> StreamWindows:
    """The ends of whole blocks of `length`."""
    stream = data.stream(config.evaluation.split)
    return StreamWindows(stream, ends(len(stream.tokens), length, config.evaluation.k))


def ends(tokens: int, length: int, k: int) -> Spans:
    """A stream of `tokens` in whole blocks of `length` of which the last `k` <= length count."""
    stop = np.arange(length, tokens + 1, length)
    return np.stack([stop - length, stop - k, stop], axis=1)
