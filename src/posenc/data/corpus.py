"""A corpus: documents in up to three splits, and fractions for automatic splits."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from posenc.config.errors import ConfigError
from posenc.config.settings import SPLITS
from posenc.config.values import json_digest

MIN_DOCUMENTS_TO_HASH = 200
"""With fewer documents, a split that receives 5% of them by hash could be empty."""


class Corpus(ABC):
    """Documents grouped by split, in a fixed order that is part of the corpus.

    `vocab_size` is the published number of distinct words in the train split, including <unk> and
    <eos>, or None if no number is published. Corpora with `requires_download` may need the network.
    """

    name: str
    vocab_size: int | None = None
    requires_download: bool = False

    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """Return the available splits, in the order of `SPLITS`."""

    @abstractmethod
    def documents(self, split: str) -> Iterator[str]:
        """Yield the documents of `split`, which is one of `splits()`; skip blank documents."""

    @abstractmethod
    def split_digest(self, split: str) -> str:
        """Return a hash of everything that determines `documents(split)`."""

    def check_unchanged(self) -> None:
        """Raise ConfigError if a file has changed since `split_digest` read it."""
        return

    def digest(self) -> str:
        """Return a hash of all splits."""
        return json_digest({split: self.split_digest(split) for split in self.splits()})


@dataclass(frozen=True)
class SplitFractions:
    """The fractions of a corpus or document that are held out for validation and test.

    The rest is the train split. Raises ConfigError if a fraction is negative or nothing is left for
    training.
    """

    validation: float
    test: float

    def __post_init__(self) -> None:
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1:
            raise ConfigError(
                f"data.validation_fraction={self.validation} and data.test_fraction={self.test}"
                " must be non-negative, and their sum must be below 1"
            )

    def splits(self) -> tuple[str, ...]:
        """Return the splits with nonzero fractions."""
        fractions = {"train": 1.0, "validation": self.validation, "test": self.test}
        return tuple(split for split in SPLITS if fractions[split] > 0)

    def assign_split(self, key: bytes) -> str:
        """Return the split that the hash of `key` selects."""
        point = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64
        if point < self.test:
            return "test"
        return "validation" if point < self.test + self.validation else "train"

    def split_slice(self, document: str, split: str) -> str:
        """Return the part of `document` that belongs to `split`.

        The document is cut twice: train comes first, then validation, then test. Each cut moves
        forward to the next line start, unless the following part would then be empty.
        """
        size = len(document)
        first_cut = round(size * (1 - self.validation - self.test))
        second_cut = round(size * (1 - self.test))
        train_end = validation_end = _next_line_start(document, second_cut, size)
        if self.validation:
            train_end = _next_line_start(document, first_cut, second_cut)
        start, end = {
            "train": (0, train_end),
            "validation": (train_end, validation_end),
            "test": (validation_end, size),
        }[split]
        return document[start:end]


class SplittableCorpus(Corpus):
    """A corpus whose splits may be taken from its train split.

    If `_fractions` is not None, the documents of the train split are assigned to splits by hash or,
    if there are few, each is cut into three parts.
    """

    _fractions: SplitFractions | None

    @abstractmethod
    def _documents(self, split: str) -> Iterator[str]:
        """Yield the documents of one of the source's own splits."""

    def documents(self, split: str) -> Iterator[str]:
        for document in self._documents(split if self._fractions is None else "train"):
            part = self._part(document, split)
            if part.strip():
                yield part

    def _part(self, document: str, split: str) -> str:
        if self._fractions is None:
            return document
        if self._assigns_by_hash:
            return document if self._fractions.assign_split(document.encode()) == split else ""
        return self._fractions.split_slice(document, split)

    @cached_property
    def _assigns_by_hash(self) -> bool:
        nonblank = (document for document in self._documents("train") if document.strip())
        return sum(1 for _ in islice(nonblank, MIN_DOCUMENTS_TO_HASH)) == MIN_DOCUMENTS_TO_HASH


def split_lines(document: str) -> list[str]:
    """Return the lines of `document` without their newlines; the last line may lack one."""
    return document.removesuffix("\n").split("\n") if document else []


def _next_line_start(document: str, start: int, limit: int) -> int:
    """Return the first start of a line in [start, limit), or `start` if there is none."""
    newline = document.find("\n", max(start - 1, 0), max(limit - 1, 0))
    return start if newline < 0 else newline + 1
