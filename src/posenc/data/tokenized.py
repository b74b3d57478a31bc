"""A prepared corpus: memory-mapped tokens and what is known of them."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from posenc.config.errors import ConfigError, did_you_mean
from posenc.data.corpus import SPLITS
from posenc.data.dataset import Dataset, Examples
from posenc.data.token_array import TokenArray
from posenc.data.tokenizers import Tokenizer, load_tokenizer
from posenc.data.windows import TrainingWindows, spread
from posenc.runs.files import read_json


class TokenizedData(Dataset):
    """The folder that `prepare` makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._meta: dict[str, Any] = read_json(folder / "meta.json")

    @property
    def fingerprint(self) -> str:
        return self._meta["fingerprint"]

    @property
    def name(self) -> str:
        return self._meta["name"]

    @property
    def vocab_size(self) -> int:
        return self._meta["vocab_size"]

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(split for split in SPLITS if split in self._meta["splits"])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def training(self, length: int, seed: int) -> TrainingWindows:
        return TrainingWindows(self.stream("train"), length, seed)

    def validation(self, length: int, tokens: int) -> tuple[Tensor, Tensor]:
        return spread(self.stream("validation"), length, tokens)

    def check(self, split: str, length: int) -> None:
        tokens = len(self.stream(split).tokens)
        if tokens < length:
            raise ConfigError(
                f"the {split} split of '{self.name}' has {tokens} tokens, fewer than one"
                f" window of {length}; give more text or shorter lengths"
            )

    def examples(self, split: str, length: int) -> Examples:
        raise ConfigError(
            f"evaluation.protocols: the data '{self.name}' is text, and only a task has 'tasks';"
            " give other protocols, or data=task_..."
        )

    def stream(self, split: str) -> TokenArray:
        """The tokens of one of `splits`; ConfigError for any other."""
        if split not in self.splits:
            raise ConfigError(
                f"split '{split}' is not in the data '{self.name}'"
                f"{did_you_mean(split, self.splits)}; it has {', '.join(self.splits)}"
            )
        counted = self._meta["splits"][split]
        file, dtype = self.folder / f"{split}.bin", np.dtype(self._meta["dtype"])
        return TokenArray(
            tokens=np.memmap(file, dtype=dtype, mode="r"),
            words=counted["words"],
            bytes=counted["bytes"],
            documents=counted["documents"],
            end_of_text=self._meta["end_of_text"],
        )
