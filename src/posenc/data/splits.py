"""Dividing one body of text into train, validation and test."""

import hashlib
from dataclasses import dataclass

from posenc.config.errors import ConfigError
from posenc.data.corpus import SPLITS


@dataclass(frozen=True)
class Shares:
    """The shares of the text, 0 to 1, that are held out; the rest is for training."""

    validation: float
    test: float

    def __post_init__(self) -> None:
        if min(self.validation, self.test) < 0 or self.validation + self.test >= 1:
            raise ConfigError(
                f"data.validation_share: {self.validation} and data.test_share: {self.test} must "
                "not be negative and must leave something to train on (a sum below 1)"
            )

    def splits(self) -> tuple[str, ...]:
        held_out = {"train": 1.0, "validation": self.validation, "test": self.test}
        return tuple(split for split in SPLITS if held_out[split] > 0)

    def split_of(self, key: bytes) -> str:
        """The split of the unit that `key` names: a function of `key` and the shares alone."""
        point = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64
        if point < self.test:
            return "test"
        return "validation" if point < self.test + self.validation else "train"

    def part_of(self, document: str, split: str) -> str:
        """The contiguous part of `document` for `split`: train first, then validation, test.

        A cut is moved to the next end of line where that one lies in the same part. The parts
        joined are the document.
        """
        size = len(document)
        first = round(size * (1 - self.validation - self.test))
        second = round(size * (1 - self.test))
        first, second = _line_end(document, first, second), _line_end(document, second, size)
        starts = {"train": (0, first), "validation": (first, second), "test": (second, size)}
        start, end = starts[split]
        return document[start:end]


def _line_end(document: str, start: int, limit: int) -> int:
    end = document.find("\n", max(start - 1, 0), limit)
    return start if end < 0 else end + 1
