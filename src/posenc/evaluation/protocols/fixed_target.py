"""The same targets at every length, with more and more context.

The targets are the last `targets` tokens of each whole block of the longest length asked for. At
a length T each such span stands at the end of a window of T tokens, so that a loss that falls with
T comes from context and from nothing else: which tokens are scored stays the same.
"""

import numpy as np
from omegaconf import DictConfig

from posenc.config.settings import evaluation_lengths
from posenc.data.dataset import Dataset
from posenc.evaluation.windows import Spans, StreamWindows


def fixed_target(data: Dataset, config: DictConfig, length: int) -> StreamWindows:
    """Windows of `length` that end where blocks of the longest length asked for end."""
    stream, longest = data.stream(config.evaluation.split), max(evaluation_lengths(config))
    targets = config.evaluation.targets
    return StreamWindows(stream, fixed(len(stream.tokens), length, longest, targets))


def fixed(tokens: int, length: int, longest: int, targets: int) -> Spans:
    """Windows of `length` <= longest whose last `targets` <= length tokens are scored."""
    stop = np.arange(longest, tokens + 1, longest)
    return np.stack([stop - length, stop - targets, stop], axis=1)
