"""The answers of a task: as many sequences of the length as the task measures, answers scored.

Besides the loss, a row says how many answers the model ranks first (`accuracy`, each given the
answers before it) and in how many sequences it does so for all of them (`exact`).
"""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig

from posenc.data.dataset import Dataset, Examples
from posenc.data.token_array import TokenArray
from posenc.evaluation.windows import Batch


def tasks(data: Dataset, config: DictConfig, length: int) -> "TaskWindows":
    """Sequences of the largest size that `length` tokens hold."""
    return TaskWindows(data.examples(config.evaluation.split, length))


class TaskWindows:
    """A window for each sequence, all of one length."""

    text: TokenArray | None = None

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        self.lengths = np.full(*examples.tokens.shape)
        self.scored = examples.scored.sum(axis=1)

    def batch(self, numbers: NDArray[np.int64]) -> Batch:
        targets = torch.from_numpy(self._examples.tokens[numbers])
        begin = torch.full((len(numbers), 1), self._examples.begin)
        inputs = torch.cat([begin, targets[:, :-1]], dim=1)
        return Batch(inputs, targets, torch.from_numpy(self._examples.scored[numbers]))

    def digest(self, numbers: NDArray[np.int64]) -> str:
        tokens, scored = (of[np.sort(numbers)] for of in self._examples[:2])
        return hashlib.sha256(tokens.astype("<u4").tobytes() + scored.tobytes()).hexdigest()[:16]
