"""Positions in bins, for curves that can be read."""

from itertools import pairwise
from math import ceil, floor, log2, sqrt

import numpy as np

BINS_PER_OCTAVE = 4


def binned(
    sums: np.ndarray, counts: np.ndarray, train_length: int
) -> list[tuple[float, float, int]]:
    """(position from 1, mean loss, tokens) of log-spaced bins over the positions of a window.

    One bin ends at the training length, so that none mixes positions on either side of it.
    """
    first = floor(-BINS_PER_OCTAVE * log2(train_length))
    last = ceil(BINS_PER_OCTAVE * log2(len(sums) / train_length))
    ends = np.floor(train_length * 2 ** (np.arange(first, last) / BINS_PER_OCTAVE)).astype(int)
    edges = np.unique(np.clip([0, *ends, len(sums)], 0, len(sums))).tolist()
    bins = []
    for start, end in pairwise(edges):
        tokens = int(counts[start:end].sum())
        if tokens:
            centre = sqrt((start + 1) * end)
            bins.append((centre, float(sums[start:end].sum()) / tokens, tokens))
    return bins
