"""Inputs and targets from a stream of tokens.

Everywhere, one `end_of_text` stands before the stream: the input at place i is token i - 1, the
target token i, so that every token is a target and the first is predicted from `end_of_text`.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from posenc.config.errors import ConfigError
from posenc.data.token_array import TokenArray


class TrainingWindows:
    """Windows of `length` tokens, end to end, in an order drawn anew from `seed` each epoch.

    Which tokens stand in a batch depends on seed and step alone. A tail shorter than a window
    is not trained on.
    """

    def __init__(self, stream: TokenArray, length: int, seed: int) -> None:
        self.count = len(stream.tokens) // length
        if self.count == 0:
            raise ConfigError(
                f"train_length: {length} tokens are needed for one window, but the train split has "
                f"{len(stream.tokens)}; give a shorter train_length or more text"
            )
        self._tokens, self._end_of_text = np.asarray(stream.tokens), stream.end_of_text
        self._length, self._seed = length, seed

    def batch(self, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of `step`, int64 [size, length] each: windows step*size and on."""
        windows = np.array([self._window(step * size + place) for place in range(size)])
        places = windows[:, None] * self._length + np.arange(-1, self._length)
        tokens = self._tokens[np.maximum(places, 0)].astype(np.int64)
        tokens[places < 0] = self._end_of_text
        rows = torch.from_numpy(tokens)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def _window(self, number: int) -> int:
        epoch, place = divmod(number, self.count)
        return int(_order(self._seed, epoch, self.count)[place])


def block(stream: TokenArray, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets for the targets at places `start` to `stop`, int64 [stop - start]."""
    tokens = stream.tokens[max(start - 1, 0) : stop].astype(np.int64)
    if start == 0:
        tokens = np.concatenate(([stream.end_of_text], tokens))
    row = torch.from_numpy(tokens)
    return row[:-1], row[1:]


def spread(stream: TokenArray, length: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets [n, length] of whole windows spread evenly, about `tokens` in all."""
    whole = len(stream.tokens) // length
    numbers = np.unique(np.linspace(0, whole - 1, max(1, tokens // length)).astype(int)).tolist()
    blocks = [block(stream, n * length, (n + 1) * length) for n in numbers]
    inputs, targets = (torch.stack(rows) for rows in zip(*blocks, strict=True))
    return inputs, targets


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The numbers below `count`, shuffled by (seed, epoch).

    Sorts raw bits because their stream, unlike that of numpy's `permutation`, is the same in
    every version of numpy.
    """
    bits = np.random.PCG64(np.random.SeedSequence((seed, epoch))).random_raw(count)
    return np.argsort(bits, kind="stable")
