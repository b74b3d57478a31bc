"""What a run is trained and measured on, be it text or a task."""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from posenc.data.token_array import TokenArray
from posenc.data.tokenizers import Tokenizer

IGNORED = -100
"""The target at a place that is not scored."""


class Examples(NamedTuple):
    """Sequences of tokens [n, T], a mask [n, T] of what is scored, and the token before each."""

    tokens: NDArray[np.int64]
    scored: NDArray[np.bool_]
    begin: int


class Batches(Protocol):
    """What is trained on, in an order that a seed decides."""

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of `step`, int64 [size, T] each, a function of the two alone."""
        ...


class Dataset(ABC):
    """Tokens by split, known by a fingerprint of everything that made them."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """12 hexadecimal digits that change whenever the tokens would."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the corpus or task."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """How many tokens there are."""

    @property
    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The splits that there are, in the order of `SPLITS`."""

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """From text to tokens and back."""

    @abstractmethod
    def training(self, length: int, seed: int) -> Batches:
        """The train split in windows of `length` tokens; ConfigError where it has none."""

    @abstractmethod
    def validation(self, length: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [n, length] of the validation split, about `tokens` in all."""

    @abstractmethod
    def stream(self, split: str) -> TokenArray:
        """The tokens of one of `splits`; ConfigError for any other, and for a task."""

    @abstractmethod
    def examples(self, split: str, length: int) -> Examples:
        """What a task asks at a length; ConfigError for text."""

    @abstractmethod
    def check(self, split: str, length: int) -> None:
        """ConfigError where `split` has no window of `length` tokens."""
