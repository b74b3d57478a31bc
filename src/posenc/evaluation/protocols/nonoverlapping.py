"""The stream cut into blocks of the length, every token scored (Press et al. 2022, section 2.2).

fairseq's `--context-window 0` with `--sample-break-mode none`.
"""

import numpy as np
from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.evaluation.windows import Spans, StreamWindows


def nonoverlapping(data: Dataset, config: DictConfig, length: int) -> StreamWindows:
    """Blocks of `length` and the short tail."""
    stream = data.stream(config.evaluation.split)
    return StreamWindows(stream, blocks(len(stream.tokens), length))


def blocks(tokens: int, length: int) -> Spans:
    """A stream of `tokens` in blocks of `length`, the tail as long as it is."""
    start = np.arange(0, tokens, length)
    return np.stack([start, start, np.minimum(start + length, tokens)], axis=1)
