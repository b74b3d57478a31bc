"""The interfaces of tokenizers and of trainers, which train a tokenizer on a corpus."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as HuggingFaceTokenizer

from posenc.config.values import json_digest
from posenc.data.corpus import Corpus
from posenc.runs.files import read_mapping, write_atomic, write_json

Ids = NDArray[np.uint32]
CONFIG_NAME = "tokenizer_config.json"
"""The file in which `transformers` expects the special tokens of a tokenizer.json."""


class Tokenizer(ABC):
    """Maps text to ids below `vocab_size` and back.

    `eos_id`, the id of `eos_token`, ends every document; it is also the input before the first
    token of a split.
    """

    kind: ClassVar[str]
    vocab_size: int
    eos_id: int
    eos_token: str

    @abstractmethod
    def encode_documents(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Yield the ids of all documents in arrays of any size; `eos_id` ends every document."""

    def expected_tokens(self, documents: Iterable[str]) -> int:
        """Return the number of tokens in all documents."""
        return sum(map(len, self.encode_documents(documents)))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without a final `eos_id`."""
        return [int(id) for ids in self.encode_documents([text]) for id in ids][:-1]

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, without `eos_id`."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return everything that defines the tokenizer, as JSON values."""

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the tokenizer that `state()` describes."""
        return cls(**state)

    @abstractmethod
    def to_huggingface(self) -> HuggingFaceTokenizer:
        """Return a tokenizer of the `tokenizers` library with the same ids.

        With add_special_tokens=False, it encodes every text as `encode` does, unless special tokens
        are spelled out in the text.
        """

    @classmethod
    @abstractmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer, eos_token: str) -> Self:
        """Return the tokenizer whose `to_huggingface` returned `tokenizer`."""

    def digest(self) -> str:
        """Return a hash of the tokenizer."""
        return json_digest([self.kind, self.state()])

    @cached_property
    def file_digest(self) -> str:
        """The `tokenizer_digest` of the files that `save` writes."""
        return _file_digest(json.loads(self.to_huggingface().to_str()), self._config())

    def save(self, path: Path) -> None:
        """Write the tokenizer.json file `path`, and `tokenizer_config.json` in the same folder.

        The second file contains the kind and the end-of-text token, for which tokenizer.json has no
        field.
        """
        write_json(path.with_name(CONFIG_NAME), self._config())
        write_atomic(path, self.to_huggingface().to_str() + "\n")

    def _config(self) -> dict[str, str]:
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": self.eos_token,
            "posenc_kind": self.kind,
        }


def tokenizer_digest(path: Path) -> str:
    """Return a digest of the contents of the tokenizer.json file `path` and its configuration.

    Unlike `Tokenizer.digest`, it does not depend on how this version of the `tokenizers` library
    represents the tokenizer. Raises RunError if a file is corrupt.
    """
    return _file_digest(read_mapping(path, {}), read_mapping(path.with_name(CONFIG_NAME), {}))


def _file_digest(tokenizer: dict[str, Any], config: dict[str, Any]) -> str:
    return json_digest([tokenizer, config])[:16]


class TokenizerTrainer(ABC):
    """Trains a tokenizer on the train split of a corpus."""

    @abstractmethod
    def expected_vocab_size(self, corpus: Corpus) -> int | None:
        """Return the vocabulary size to expect on `corpus`, or None if it is unknown."""

    def expected_tokens(self, documents: Iterable[str]) -> int | None:
        """Return the approximate number of tokens in all documents, or None if it is unknown."""
        return None

    @abstractmethod
    def train(self, documents: Iterable[str]) -> Tokenizer:
        """Return the tokenizer trained on `documents`; training must be deterministic."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of the settings."""
