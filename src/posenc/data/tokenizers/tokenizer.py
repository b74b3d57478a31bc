"""The interfaces of tokenizers and of trainers, which train a tokenizer on a corpus."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from posenc.data.corpus import Corpus, json_digest
from posenc.runs.files import write_atomic

Ids = NDArray[np.uint32]


class Tokenizer(ABC):
    """Maps text to ids below `vocab_size` and back.

    `eos_id` ends every document; it is also the input before the first token of a split.
    """

    kind: ClassVar[str]
    vocab_size: int
    eos_id: int

    @abstractmethod
    def encode(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Yield arrays of ids that together encode all documents, each ending with `eos_id`."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything that defines the tokenizer, as JSON values."""

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """Return the tokenizer that `state()` describes."""
        return cls(**state)

    def digest(self) -> str:
        """Return a hash of the tokenizer."""
        return json_digest([self.kind, self.state()])

    def save(self, path: Path) -> None:
        """Write the kind and the state to `path` atomically, for `load_tokenizer`."""
        write_atomic(path, json.dumps({"kind": self.kind, "state": self.state()}) + "\n")


class TokenizerTrainer(ABC):
    """Trains a tokenizer on the train split of a corpus."""

    @abstractmethod
    def expected_vocab_size(self, corpus: Corpus) -> int | None:
        """Return the vocabulary size to expect on `corpus`, or None if it is unknown."""

    @abstractmethod
    def train(self, documents: Iterable[str]) -> Tokenizer:
        """Return the tokenizer trained on `documents`; training must be deterministic."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of the settings."""
