"""A task as a dataset.

As with text, a BOS token precedes every sequence: the target at position i is token i, and its
input is token i - 1. Only answers are scored, in training and evaluation, because prompts are
random.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.config.settings import SPLITS
from posenc.config.values import json_digest
from posenc.data.dataset import IGNORE_INDEX, Dataset, Examples, TokenArray
from posenc.data.tasks.task import BOS, SeededRandom, Task
from posenc.data.tokenizers import Tokenizer


class TaskData(Dataset):
    """Examples generated on demand: unlimited in training, `task.examples` per evaluation length.

    Each split has its own seeds. Evaluation examples do not depend on the run's seed, so that all
    runs are evaluated on the same examples. At small sizes there are so few distinct sequences
    that the splits overlap. `tokenizer` has one token per symbol. As in GPT-2, `eos_id` is also the
    BOS token; the other symbols have the remaining ids, in order.
    """

    def __init__(self, task: Task, tokenizer: Tokenizer) -> None:
        self.task, self.name = task, task.name
        self._tokenizer, self.vocab_size = tokenizer, tokenizer.vocab_size
        self.splits = SPLITS
        self.fingerprint = json_digest([task.digest(), tokenizer.digest()])[:12]
        other_ids = np.delete(np.arange(tokenizer.vocab_size), tokenizer.eos_id)
        self._ids = np.append(tokenizer.eos_id, other_ids)

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def training_batches(self, length: int, seed: int) -> "TaskBatches":
        return TaskBatches(self.task, length, "train", seed, ids=self._ids)

    def validation_batch(self, length: int, num_tokens: int) -> tuple[Tensor, Tensor]:
        """Return examples whose sizes are distributed as in training."""
        batches = TaskBatches(self.task, length, "validation along training", length, ids=self._ids)
        return batches.batch(0, max(1, num_tokens // length))

    def examples(self, split: str, length: int) -> Examples:
        """Return `task.examples` examples of the largest size that fits in `length` tokens."""
        size = self.task.largest_size(length)
        examples = [
            self.task.generate(SeededRandom(split, length, index), size)
            for index in range(self.task.examples)
        ]
        tokens, scored = (np.stack(arrays) for arrays in zip(*examples, strict=True))
        return Examples(self._ids[tokens], scored, self._tokenizer.eos_id)

    def token_array(self, split: str) -> TokenArray:
        raise ConfigError(
            f"evaluation.protocols: the protocols for text do not apply to the task '{self.name}';"
            " use evaluation=tasks"
        )

    def check_length(self, split: str, length: int) -> None:
        self.task.largest_size(length)


class TaskBatches:
    """Examples of random sizes, uniform from 1 to the largest that fits, padded to `length` tokens.

    The examples of a batch depend only on `seed`, the step and the batch size. There are no epochs.
    `ids` maps the task's symbols to the tokenizer's ids; by default, they are the same.
    """

    def __init__(
        self, task: Task, length: int, *seed: str | int, ids: NDArray[np.int64] | None = None
    ) -> None:
        self._task, self._length, self._seed = task, length, seed
        self._ids = np.arange(len(task.symbols)) if ids is None else ids
        self._largest_size = task.largest_size(length)

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of `step`, int64 [size, length] each."""
        inputs = np.full((size, self._length + 1), self._ids[BOS])
        targets = np.full((size, self._length), IGNORE_INDEX)
        for row in range(size):
            random = SeededRandom(*self._seed, step * size + row)
            example_size = 1 + random.integer(self._largest_size)
            tokens, scored = self._task.generate(random, example_size)
            ids = self._ids[tokens]
            inputs[row, 1 : len(tokens) + 1] = ids
            targets[row, : len(tokens)] = np.where(scored, ids, IGNORE_INDEX)
        return torch.from_numpy(inputs[:, :-1].copy()), torch.from_numpy(targets)
