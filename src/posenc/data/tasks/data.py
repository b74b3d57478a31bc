"""A task as a dataset."""

import numpy as np
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.data.corpus import SPLITS
from posenc.data.dataset import Dataset, Examples
from posenc.data.digest import digest_of
from posenc.data.tasks.draws import Draws
from posenc.data.tasks.examples import MixedExamples
from posenc.data.tasks.task import Task
from posenc.data.token_array import TokenArray
from posenc.data.tokenizers import Tokenizer


class TaskData(Dataset):
    """Examples drawn on demand: without end for training, `task.examples` of each length else.

    Each split is drawn from seeds of its own, and what is measured does not depend on the run's,
    so that all runs answer the same questions. A task has few sequences of small sizes; those
    stand in every split. In the tokens of `tokenizer`, of which there are as many as symbols,
    its end of text begins a sequence and the others are the symbols in order.
    """

    def __init__(self, task: Task, tokenizer: Tokenizer) -> None:
        self.task = task
        self._tokenizer = tokenizer
        self._fingerprint = digest_of([task.digest(), tokenizer.digest()])[:12]
        others = np.delete(np.arange(tokenizer.vocab_size), tokenizer.end_of_text)
        self._ids = np.append(tokenizer.end_of_text, others)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    @property
    def splits(self) -> tuple[str, ...]:
        return SPLITS

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def training(self, length: int, seed: int) -> MixedExamples:
        return MixedExamples(self.task, length, "train", seed)

    def validation(self, length: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Examples of sizes as in training."""
        examples = MixedExamples(self.task, length, "validation along training", length)
        return examples.batch(0, max(1, tokens // length))

    def examples(self, split: str, length: int) -> Examples:
        """`task.examples` examples of the largest size that `length` tokens hold."""
        size, numbers = self.task.largest(length), range(self.task.examples)
        drawn = [self.task.draw(Draws(split, length, number), size) for number in numbers]
        tokens, scored = (np.stack(arrays) for arrays in zip(*drawn, strict=True))
        return Examples(self._ids[tokens], scored, self._tokenizer.end_of_text)

    def stream(self, split: str) -> TokenArray:
        raise ConfigError(
            f"evaluation.protocols: the task '{self.name}' is no text; give evaluation=tasks"
        )

    def check(self, split: str, length: int) -> None:
        self.task.largest(length)
