"""A corpus: documents in up to three splits, and the automatic split of a text."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from posenc.config.errors import ConfigError
from posenc.config.settings import SPLITS


class Corpus(ABC):
    """Documents by split. The order of documents is part of the corpus and never changes.

    `vocab_size` is the published number of distinct words of the train split, including <unk> and
    <eos>; None where none is published.
    """

    name: str
    vocab_size: int | None = None

    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """Return the available splits, in the order of `SPLITS`."""

    @abstractmethod
    def documents(self, split: str) -> Iterator[str]:
        """Yield the documents of one of `splits()`; blank documents are skipped."""

    @abstractmethod
    def split_digest(self, split: str) -> str:
        """Return a hash of everything that determines `documents(split)`."""

    def digest(self) -> str:
        """Return a hash of all splits."""
        return digest_of({split: self.split_digest(split) for split in self.splits()})


@dataclass(frozen=True)
class SplitFractions:
    """The fractions of a text, 0 to 1, held out for validation and test; the rest is for training.

    Raises ConfigError if nothing is left for training.
    """

    validation: float
    test: float

    def __post_init__(self) -> None:
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1:
            raise ConfigError(
                f"data.validation_fraction={self.validation} and data.test_fraction={self.test} "
                "must not be negative and their sum must be below 1"
            )

    def splits(self) -> tuple[str, ...]:
        """Return the splits with a fraction above 0."""
        fractions = {"train": 1.0, "validation": self.validation, "test": self.test}
        return tuple(split for split in SPLITS if fractions[split] > 0)

    def split_of(self, key: bytes) -> str:
        """Return the split of the unit named `key`, a function of `key` and the fractions alone."""
        point = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64
        if point < self.test:
            return "test"
        return "validation" if point < self.test + self.validation else "train"

    def part_of(self, document: str, split: str) -> str:
        """Return the contiguous part of `document` for `split`: train first, then validation, test.

        A cut is moved to the next end of line if there is one within the same part.
        """
        size = len(document)
        first = round(size * (1 - self.validation - self.test))
        second = round(size * (1 - self.test))
        first, second = _line_end(document, first, second), _line_end(document, second, size)
        bounds = {"train": (0, first), "validation": (first, second), "test": (second, size)}
        start, end = bounds[split]
        return document[start:end]


def lines(document: str) -> Iterator[str]:
    """Yield the lines of `document` without their newlines; the last newline is optional."""
    start = 0
    while start < len(document):
        end = document.find("\n", start)
        end = len(document) if end < 0 else end
        yield document[start:end]
        start = end + 1


def digest_of(value: Any) -> str:
    """Return the SHA-256 (hex) of `value` as canonical JSON, independent of key order."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _line_end(document: str, start: int, limit: int) -> int:
    end = document.find("\n", max(start - 1, 0), limit)
    return start if end < 0 else end + 1
