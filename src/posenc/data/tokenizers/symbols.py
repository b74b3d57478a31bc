"""A vocabulary of named symbols, defined by a task."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer as HuggingFaceTokenizer

from posenc.data.tokenizers.tokenizer import Ids, Tokenizer
from posenc.data.tokenizers.word_level import tokens_by_id, word_level


class SymbolTokenizer(Tokenizer):
    """Symbols separated by whitespace, with ids in the order of `symbols`; id 0 ends a document."""

    kind = "symbols"
    eos_id = 0

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.vocab_size = len(self.symbols)

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

    @property
    def eos_token(self) -> str:
        return self.symbols[self.eos_id]

    def to_huggingface(self) -> HuggingFaceTokenizer:
        return word_level(self.symbols)

    @classmethod
    def from_huggingface(cls, tokenizer: HuggingFaceTokenizer, eos_token: str) -> Self:
        return cls(tokens_by_id(tokenizer))
