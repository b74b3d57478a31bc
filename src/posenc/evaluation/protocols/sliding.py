"""A window that moves on by `stride` tokens and scores those alone (Press et al. 2022, appendix B).

The tokens from b stride to (b + 1) stride are scored after the length - stride before them, or as
many as there are: fairseq's `--context-window C` for C = length - stride. The first ones, which
all see the stream from its start, are scored in one window. A stride of 1 is the paper's S = 1; a
stride of the length is nonoverlapping.
"""

import numpy as np
from omegaconf import DictConfig

from posenc.data.dataset import Dataset
from posenc.evaluation.windows import Spans, StreamWindows


def sliding(data: Dataset, config: DictConfig, length: int) -> StreamWindows:
    """Every token once, at least length - stride tokens of context where the stream has them."""
    stream = data.stream(config.evaluation.split)
    return StreamWindows(stream, slides(len(stream.tokens), length, config.evaluation.stride))


def slides(tokens: int, length: int, stride: int) -> Spans:
    """A stream of `tokens` in windows of `length` that move on by `stride` <= length."""
    first = np.concatenate(([0], np.arange(length - length % stride, tokens, stride)))
    stop = np.append(first[1:], tokens)
    return np.stack([np.maximum(first - (length - stride), 0), first, stop], axis=1)
