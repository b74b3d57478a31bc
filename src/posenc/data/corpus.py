"""What a corpus is: documents in up to three splits, and a digest of what they are made from."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from posenc.data.digest import digest_of

SPLITS = ("train", "validation", "test")


class Corpus(ABC):
    """Documents by split. The order of documents is part of the corpus and never changes.

    `words` are the types of the train split, <unk> and <eos> among them, where they are published.
    """

    name: str
    words: int | None = None

    @abstractmethod
    def splits(self) -> tuple[str, ...]:
        """The splits that there are, in the order of `SPLITS`."""

    @abstractmethod
    def documents(self, split: str) -> Iterator[str]:
        """The documents of one of `splits()`; blank ones are left out."""

    @abstractmethod
    def split_digest(self, split: str) -> str:
        """Hash of everything that decides what `documents(split)` yields."""

    def digest(self) -> str:
        """Hash of all splits together."""
        return digest_of({split: self.split_digest(split) for split in self.splits()})


def lines(document: str) -> Iterator[str]:
    """The lines of `document` without their newlines; a last line need not have one."""
    start = 0
    while start < len(document):
        end = document.find("\n", start)
        end = len(document) if end < 0 else end
        yield document[start:end]
        start = end + 1
