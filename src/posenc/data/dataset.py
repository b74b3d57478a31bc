"""The dataset interface: data for training and evaluation, either text or a task."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.config.errors import ConfigError
from posenc.data.tokenizers import Tokenizer

IGNORE_INDEX = -100
"""The target at a position that is not scored, as in `torch.nn.functional.cross_entropy`."""


@dataclass(frozen=True)
class TokenArray:
    """One split of a corpus: its `tokens` [N] (unsigned integers) and its size.

    `words` is the number of whitespace-separated words; `bytes` is the size of the UTF-8 text.
    """

    tokens: np.ndarray
    words: int
    bytes: int
    documents: int
    eos_id: int

    def windows(self, starts: NDArray[np.int64], length: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets, int64 [n, length] each, of windows that begin at `starts` [n].

        The input for each target is the token before it. The input for the first token of the
        array is `eos_id`, so that every token can be a target.
        """
        positions = starts[:, None] + np.arange(-1, length)
        tokens = np.asarray(self.tokens)[np.maximum(positions, 0)].astype(np.int64)
        tokens[positions < 0] = self.eos_id
        rows = torch.from_numpy(tokens)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


class Examples(NamedTuple):
    """The `tokens` [n, T] of sequences and a mask `scored` [n, T] of the scored tokens.

    `bos_id` is the token before each sequence.
    """

    tokens: NDArray[np.int64]
    scored: NDArray[np.bool_]
    bos_id: int


class Batches(Protocol):
    """Training batches, in an order determined by a seed."""

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of `step`, int64 [size, T] each."""
        ...


class Dataset(ABC):
    """Tokens of a corpus or task, grouped by split.

    `fingerprint` is a hash of 12 hexadecimal digits that changes whenever the tokens would
    change; `splits` are the available splits, in the order of `SPLITS`.
    """

    name: str
    fingerprint: str
    vocab_size: int
    splits: tuple[str, ...]

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that produced the tokens."""

    @abstractmethod
    def training_batches(self, length: int, seed: int) -> Batches:
        """Return the training batches for a seed, with `length` tokens per sequence.

        Raises ConfigError if there is no train split, if it is shorter than one window, or if a
        task has no sequence of at most `length` tokens.
        """

    @abstractmethod
    def validation_batch(self, length: int, num_tokens: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets [n, length] of about `num_tokens` validation tokens."""

    @abstractmethod
    def token_array(self, split: str) -> TokenArray:
        """Return the tokens of `split`.

        Raises ConfigError for a task or an unknown split.
        """

    @abstractmethod
    def examples(self, split: str, length: int) -> Examples:
        """Return the evaluation examples of a task, of at most `length` tokens each.

        Raises ConfigError for text.
        """

    @abstractmethod
    def check_length(self, split: str, length: int) -> None:
        """Raise ConfigError if `split` has fewer than `length` tokens.

        For a task, raises ConfigError if no sequence has at most `length` tokens.
        """


def no_examples_error(name: str) -> ConfigError:
    """Return the error for evaluating the text corpus `name` as a task."""
    return ConfigError(
        f"evaluation.protocols: the protocol 'tasks' needs data=task_..., but the data '{name}' is"
        f" text; use other protocols"
    )
