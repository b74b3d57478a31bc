"""A prepared corpus: memory-mapped tokens on disk and the training windows cut from them."""

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.settings import SPLITS
from posenc.data.dataset import Dataset, Examples, TokenArray
from posenc.data.tokenizers import Tokenizer, load_tokenizer
from posenc.runs.files import read_json


class TokenizedData(Dataset):
    """The tokens in a folder written by `prepare`."""

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

    def training_batches(self, length: int, seed: int) -> "TrainingWindows":
        return TrainingWindows(self.token_array("train"), length, seed)

    def validation_batch(self, length: int, tokens: int) -> tuple[Tensor, Tensor]:
        return evenly_spaced_windows(self.token_array("validation"), length, tokens)

    def check_length(self, split: str, length: int) -> None:
        tokens = len(self.token_array(split).tokens)
        if tokens < length:
            raise ConfigError(
                f"the {split} split of '{self.name}' has {tokens} tokens, fewer than one"
                f" window of {length}; use more text or shorter lengths"
            )

    def examples(self, split: str, length: int) -> Examples:
        raise ConfigError(
            f"evaluation.protocols: the protocol 'tasks' needs data=task_..., but the data"
            f" '{self.name}' is text; use other protocols"
        )

    def token_array(self, split: str) -> TokenArray:
        if split not in self.splits:
            raise ConfigError(
                f"the data '{self.name}' has no split '{split}'"
                f"{did_you_mean(split, self.splits)} (available: {', '.join(self.splits)})"
            )
        counts = self._meta["splits"][split]
        file, dtype = self.folder / f"{split}.bin", np.dtype(self._meta["dtype"])
        return TokenArray(
            tokens=np.memmap(file, dtype=dtype, mode="r"),
            words=counts["words"],
            bytes=counts["bytes"],
            documents=counts["documents"],
            eos_id=self._meta["end_of_text"],
        )


class TrainingWindows:
    """Consecutive windows of `length` tokens, reshuffled from `seed` in each epoch.

    The tokens of a batch are a function of seed and step alone. A tail shorter than a window is
    not trained on.
    """

    def __init__(self, tokens: TokenArray, length: int, seed: int) -> None:
        self.count = len(tokens.tokens) // length
        if self.count == 0:
            raise ConfigError(
                f"the train split has {len(tokens.tokens)} tokens, fewer than one window of"
                f" train_length={length}; use a shorter train_length or more text"
            )
        self._tokens, self._length, self._seed = tokens, length, seed

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of `step`, int64 [size, length] each."""
        windows = np.array([self._window(step * size + index) for index in range(size)])
        return self._tokens.windows(windows * self._length, self._length)

    def _window(self, number: int) -> int:
        epoch, index = divmod(number, self.count)
        return int(_shuffled(self._seed, epoch, self.count)[index])


def evenly_spaced_windows(tokens: TokenArray, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets [n, length] of evenly spaced windows, about `count` tokens."""
    whole = len(tokens.tokens) // length
    windows = np.unique(np.linspace(0, whole - 1, max(1, count // length)).astype(int))
    return tokens.windows(windows * length, length)


@lru_cache(maxsize=4)
def _shuffled(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the numbers below `count`, shuffled by (seed, epoch).

    Sorts raw bits because they, unlike numpy's `permutation`, are the same in every version.
    """
    bits = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(count)
    return np.argsort(bits, kind="stable")
