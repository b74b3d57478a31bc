"""Examples of a task as inputs and targets.

As with text, a symbol stands before every sequence: the input at place i is token i - 1, the target
token i. Only answers are targets, in training as in measuring: what a prompt draws at random
cannot be learned.
"""

import numpy as np
import torch
from torch import Tensor

from posenc.data.dataset import IGNORED
from posenc.data.tasks.draws import Draws
from posenc.data.tasks.task import BEGIN, Example, Task


class MixedExamples:
    """Examples of at most `length` tokens, their sizes uniform from 1 up, padded to `length`.

    Which examples stand in a batch depends on `name` and step alone. There are no epochs.
    """

    def __init__(self, task: Task, length: int, *name: str | int) -> None:
        self._task, self._length, self._name = task, length, name
        self._largest = task.largest(length)

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of `step`, int64 [size, length] each: examples step*size and on."""
        return padded([self._example(step * size + place) for place in range(size)], self._length)

    def _example(self, number: int) -> Example:
        draws = Draws(*self._name, number)
        return self._task.draw(draws, 1 + draws.one(self._largest))


def padded(examples: list[Example], length: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, int64 [n, length] each; `IGNORED` where nothing is to be answered."""
    inputs = np.full((len(examples), length + 1), BEGIN)
    targets = np.full((len(examples), length), IGNORED)
    for row, (tokens, scored) in enumerate(examples):
        inputs[row, 1 : len(tokens) + 1] = tokens
        targets[row, : len(tokens)] = np.where(scored, tokens, IGNORED)
    return torch.from_numpy(inputs[:, :-1].copy()), torch.from_numpy(targets)
