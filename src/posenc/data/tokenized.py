"""A prepared corpus: memory-mapped tokens on disk, and the training windows cut from them."""

from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.settings import SPLITS
from posenc.data.dataset import Dataset, Examples, TokenArray, no_examples_error
from posenc.data.prepared_files import read_meta
from posenc.data.tokenizers import Tokenizer, load_tokenizer


class TokenizedData(Dataset):
    """The tokens in a folder that `prepare` has written. Raises RunError if a file is corrupt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._meta = read_meta(folder)
        self.name, self.fingerprint = self._meta["name"], self._meta["fingerprint"]
        self.vocab_size = self._meta["vocab_size"]
        self.splits = tuple(split for split in SPLITS if split in self._meta["splits"])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.folder / "tokenizer.json")

    def training_batches(self, length: int, seed: int) -> "TrainingWindows":
        return TrainingWindows(self.token_array("train"), length, seed)

    def validation_batch(self, length: int, num_tokens: int) -> tuple[Tensor, Tensor]:
        return evenly_spaced_windows(self.token_array("validation"), length, num_tokens)

    def check_length(self, split: str, length: int) -> None:
        tokens = len(self.token_array(split).tokens)
        if tokens < length:
            raise ConfigError(
                f"the {split} split of '{self.name}' has {tokens} tokens, fewer than one"
                f" window of {length} tokens; use more text or shorter lengths"
            )

    def examples(self, split: str, length: int) -> Examples:
        raise no_examples_error(self.name)

    def token_array(self, split: str) -> TokenArray:
        if split not in self.splits:
            raise ConfigError(
                f"the data '{self.name}' has no split '{split}'"
                f"{did_you_mean(split, self.splits)} (available: {', '.join(self.splits)})"
            )
        file, counts = self.folder / f"{split}.bin", self._meta["splits"][split]
        return TokenArray(
            tokens=np.memmap(file, dtype=self._meta["dtype"], mode="r"),
            words=counts["words"],
            bytes=counts["bytes"],
            documents=counts["documents"],
            eos_id=self._meta["end_of_text"],
        )


class TrainingWindows:
    """Consecutive windows of `length` tokens, shuffled in each epoch with the seed (`seed`, epoch).

    The tokens of a batch depend only on the seed, the step and the batch size. The tokens after the
    last complete window are not used.
    """

    def __init__(self, text: TokenArray, length: int, seed: int) -> None:
        self.num_windows = len(text.tokens) // length
        if self.num_windows == 0:
            raise ConfigError(
                f"the train split has {len(text.tokens)} tokens, fewer than one window of"
                f" train_length={length}; use a shorter train_length or more text"
            )
        self._text, self._length, self._seed = text, length, seed

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of `step`, int64 [size, length] each."""
        windows = []
        for index in range(step * size, (step + 1) * size):
            epoch, index_in_epoch = divmod(index, self.num_windows)
            windows.append(_permutation(self._seed, epoch, self.num_windows)[index_in_epoch])
        return self._text.windows(np.array(windows) * self._length, self._length)

    def starts(self, num_windows: int) -> NDArray[np.int64]:
        """Return the sorted start positions of the first `num_windows` training windows.

        Each window is listed once, even if there are several epochs.
        """
        indices = _permutation(self._seed, 0, self.num_windows)[:num_windows]
        return np.sort(indices).astype(np.int64) * self._length

    def token_rows(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the windows at `starts`, each with the token before it: [n, length + 1]."""
        inputs, targets = self._text.windows(starts, self._length)
        return np.concatenate([inputs[:, :1].numpy(), targets.numpy()], axis=1)


def evenly_spaced_windows(text: TokenArray, length: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets [n, length] of evenly spaced windows.

    The windows have about `num_tokens` tokens in all.
    """
    available = len(text.tokens) // length
    num_windows = min(available, max(1, num_tokens // length))
    windows = np.unique(np.linspace(0, available - 1, num_windows).astype(int))
    return text.windows(windows * length, length)


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """Return a random permutation of the integers below `size`, seeded with (seed, epoch).

    Sorts the raw output of the bit generator, which is the same in every NumPy version;
    `numpy.random.Generator.permutation` has no such guarantee.
    """
    bits = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(size)
    return np.argsort(bits, kind="stable")
