"""A vocabulary of named symbols, as a task has it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from posenc.data.tokenizers.base import Ids, Tokenizer


class SymbolTokenizer(Tokenizer):
    """Symbols between white space, numbered in the order of `symbols`; the first ends a text."""

    kind = "symbols"
    end_of_text = 0

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.vocab_size = len(self.symbols)

    def encode(self, documents: Iterable[str]) -> Iterator[Ids]:
        """ValueError for what is no symbol."""
        ids = {symbol: number for number, symbol in enumerate(self.symbols)}
        for document in documents:
            words = document.split()
            if strangers := sorted(set(words) - ids.keys()):
                there = ", ".join(self.symbols)
                raise ValueError(f"{', '.join(strangers)}: no symbols of the task ({there})")
            yield np.array([*(ids[word] for word in words), self.end_of_text], dtype=np.uint32)

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.symbols[id] for id in ids if id != self.end_of_text)

    def state(self) -> dict[str, Any]:
        return {"symbols": list(self.symbols)}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        return cls(**state)
