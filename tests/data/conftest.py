"""Corpora small enough to know by heart."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posenc.data.corpus import SPLITS, Corpus
from posenc.data.digest import digest_of

ROOT = Path(__file__).resolve().parents[2]
WIKITEXT = ROOT.parent / "shared" / "data" / "wikitext103"


class ListCorpus(Corpus):
    """Documents from memory; counts how often a split is read."""

    name = "lists"

    def __init__(self, **documents: list[str]) -> None:
        self.lists = documents
        self.readings = 0

    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self.lists)

    def documents(self, split: str) -> Iterator[str]:
        self.readings += 1
        yield from self.lists[split]

    def split_digest(self, split: str) -> str:
        return digest_of(self.lists[split])


@pytest.fixture
def list_corpus() -> Callable[..., ListCorpus]:
    """Makes a corpus of lists of documents, one per split."""
    return ListCorpus


@pytest.fixture
def wikitext() -> Path:
    """The folder of WikiText-103's validation.txt and test.txt, beside the checkout."""
    if not WIKITEXT.is_dir():
        pytest.skip("no shared/data/wikitext103 beside the checkout")
    return WIKITEXT
