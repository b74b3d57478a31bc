"""Sequences of a task at the evaluation length; only their answers are scored.

Besides the loss, a row has `accuracy`, the fraction of answer tokens that the model ranks first
(given the correct preceding tokens), and `exact`, the fraction of sequences whose answer tokens are
all ranked first.
"""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray

from posenc.data.dataset import Examples, TokenArray
from posenc.evaluation.windows import Batch


class TaskWindows:
    """One window per sequence, all of the same length."""

    text: TokenArray | None = None

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.lengths = np.full(*examples.tokens.shape)
        self.num_scored = examples.scored.sum(axis=1)

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        targets = torch.from_numpy(self._examples.tokens[indices])
        begin = torch.full((len(indices), 1), self._examples.begin)
        inputs = torch.cat([begin, targets[:, :-1]], dim=1)
        scored = torch.from_numpy(self._examples.scored[indices])
        return Batch(inputs, targets, scored, starts=np.empty(0, dtype=np.int64))

    def digest(self, indices: NDArray[np.int64]) -> str:
        tokens, scored = (array[np.sort(indices)] for array in self._examples[:2])
        return hashlib.sha256(tokens.astype("<u4").tobytes() + scored.tobytes()).hexdigest()[:16]
