"""What a tokenizer is, and what makes one from a corpus."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from posenc.data.corpus import Corpus
from posenc.data.digest import digest_of
from posenc.runs.files import write_atomic

Ids = NDArray[np.uint32]


class Tokenizer(ABC):
    """Text to ids below `vocab_size` and back; `end_of_text` also precedes every stream."""

    kind: ClassVar[str]
    vocab_size: int
    end_of_text: int

    @abstractmethod
    def encode(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Arrays of ids [n], joined the stream of all documents with their ends marked."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """All that the tokenizer is, as JSON."""

    @classmethod
    @abstractmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """The tokenizer whose `state()` this is."""

    def digest(self) -> str:
        return digest_of([self.kind, self.state()])

    def save(self, path: Path) -> None:
        """Write kind and state to `path`, atomically; `load_tokenizer` reads them."""
        write_atomic(path, json.dumps({"kind": self.kind, "state": self.state()}) + "\n")


class Trainer(ABC):
    """What learns a tokenizer from the train split of a corpus."""

    @abstractmethod
    def vocabulary_of(self, corpus: Corpus) -> int | None:
        """How many tokens it will have of that corpus; None where only learning it tells."""

    @abstractmethod
    def train(self, documents: Iterable[str]) -> Tokenizer:
        """The tokenizer that `documents` give; the same ones give the same one."""

    @abstractmethod
    def digest(self) -> str:
        """Hash of the recipe: with the documents it decides the tokenizer."""
