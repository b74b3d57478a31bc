"""A corpus held in memory."""

from collections.abc import Callable, Iterator

import pytest

from posenc.config.settings import SPLITS
from posenc.config.values import json_digest
from posenc.data.corpus import Corpus


class ListCorpus(Corpus):
    """Documents in memory; counts how often a split is read."""

    name = "lists"

    def __init__(self, **documents: list[str]) -> None:
        self.lists = documents
        self.num_reads = 0

    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self.lists)

    def documents(self, split: str) -> Iterator[str]:
        self.num_reads += 1
        yield from self.lists[split]

    def split_digest(self, split: str) -> str:
        return json_digest(self.lists[split])


@pytest.fixture
def list_corpus() -> Callable[..., ListCorpus]:
    """The class of a corpus in memory, which takes a list of documents per split."""
    return ListCorpus
