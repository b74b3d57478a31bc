"""A window that moves on by `stride` tokens and scores those alone (Press et al. 2022, appendix B).

The first window scores all of its tokens; each later one its last `stride`, with the length -
stride tokens before them as context; the last one what is left, with as much context. These are
the windows of fairseq's `--context-window C` for C = length - stride, whose first ones, short and
of growing context, give each token the same context as one whole window does. A stride of 1 is the
paper's S = 1; a stride of the length is nonoverlapping.
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
    first = np.concatenate(([0], np.arange(length, tokens, stride)))
    stop = np.minimum(np.concatenate(([length], first[1:] + stride)), tokens)
    start = np.maximum(first - (length - stride), 0)
    return np.stack([start, first, stop], axis=1)
