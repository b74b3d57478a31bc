"""A tokenizer for the named symbols of a task, and helpers shared with `word.py`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as HuggingFaceTokenizer

from posenc.data.tokenizers.tokenizer import Ids, Tokenizer

WHITESPACE = r"[\s\x1c-\x1f\x85]+"
"""A regular expression for the whitespace at which `str.split` separates words."""


class SymbolTokenizer(Tokenizer):
    """Symbols separated by whitespace, with ids in the order of `symbols`; id 0 ends a document."""

    kind = "symbols"
    eos_id = 0

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.vocab_size, self.eos_token = len(self.symbols), self.symbols[self.eos_id]

    def encode_documents(self, documents: Iterable[str]) -> Iterator[Ids]:
        """Yield the ids of each document.

        Raises ValueError for unknown symbols.
        """
        ids = {symbol: id for id, symbol in enumerate(self.symbols)}
        for document in documents:
            words = document.split()
            if unknown := sorted(set(words) - ids.keys()):
                raise ValueError(
                    f"unknown symbols {', '.join(unknown)} (available: {', '.join(self.symbols)})"
                )
            yield np.array([*(ids[word] for word in words), self.eos_id], dtype=np.uint32)

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.symbols[id] for id in ids if id != self.eos_id)

    def state(self) -> dict[str, Any]:
        return {"symbols": list(self.symbols)}

    def to_huggingface(self) -> HuggingFaceTokenizer:
        return word_level_tokenizer(self.symbols)

    @classmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer, eos_token: str) -> Self:
        return cls(tokens_by_id(tokenizer))


def word_level_tokenizer(words: Sequence[str], unknown: str | None = None) -> HuggingFaceTokenizer:
    """Return a tokenizer that splits at whitespace, with ids in the order of `words`.

    Other words are encoded as `unknown`; if it is None, encoding them raises an exception.
    """
    vocabulary = {word: id for id, word in enumerate(words)}
    model = models.WordLevel(vocabulary, **({} if unknown is None else {"unk_token": unknown}))
    tokenizer = HuggingFaceTokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WHITESPACE), "removed")
    return tokenizer


def tokens_by_id(tokenizer: HuggingFaceTokenizer) -> list[str]:
    """Return the vocabulary in the order of its ids."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(vocabulary, key=vocabulary.__getitem__)
