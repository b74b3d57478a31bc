"""A prepared corpus: memory-mapped tokens and what is known of them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from posenc.config.errors import ConfigError, did_you_mean
from posenc.data.corpus import SPLITS
from posenc.data.tokenizers import Tokenizer, load_tokenizer
from posenc.record.files import read_json


@dataclass(frozen=True)
class TokenStream:
    """One split: `tokens` [N] of unsigned integers, and what its text counted.

    `words` are separated by white space, `bytes` are those of UTF-8. The token before the first
    one is `end_of_text`.
    """

    tokens: np.ndarray
    words: int
    bytes: int
    documents: int
    end_of_text: int


class TokenizedData:
    """The folder that `prepare` makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._meta: dict[str, Any] = read_json(folder / "meta.json")

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits for corpus, split and tokenizer."""
        return self._meta["fingerprint"]

    @property
    def name(self) -> str:
        """The name of the corpus."""
        return self._meta["name"]

    @property
    def vocabulary_size(self) -> int:
        return self._meta["vocabulary_size"]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self._meta["splits"])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def stream(self, split: str) -> TokenStream:
        """The tokens of one of `splits`; ConfigError for any other."""
        if split not in self.splits:
            raise ConfigError(
                f"split '{split}' is not in the data '{self.name}'"
                f"{did_you_mean(split, self.splits)}; it has {', '.join(self.splits)}"
            )
        counted = self._meta["splits"][split]
        file, dtype = self.folder / f"{split}.bin", np.dtype(self._meta["dtype"])
        return TokenStream(
            tokens=np.memmap(file, dtype=dtype, mode="r"),
            words=counted["words"],
            bytes=counted["bytes"],
            documents=counted["documents"],
            end_of_text=self._meta["end_of_text"],
        )
