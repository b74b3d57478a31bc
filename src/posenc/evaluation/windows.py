"""What a protocol hands to the model: windows of tokens, and which of their targets are scored."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posenc.data.token_array import TokenArray

Spans = NDArray[np.int64]
"""Windows of a stream, [n, 3]: the targets from start to stop, those from first on scored."""


@dataclass(frozen=True)
class Batch:
    """Windows of one length: int64 `inputs` and `targets` [B, T], and a mask `scored` [B, T]."""

    inputs: Tensor
    targets: Tensor
    scored: Tensor


class Windows(Protocol):
    """All that a protocol measures at one length, in windows numbered from 0, of which some may
    be left out."""

    lengths: NDArray[np.int64]
    """Tokens of each window."""
    scored: NDArray[np.int64]
    """Scored targets of each window."""

    @property
    def text(self) -> TokenArray | None:
        """The split that the targets are tokens of; None where they are of no text."""
        ...

    def batch(self, numbers: NDArray[np.int64]) -> Batch:
        """The windows of these numbers, all of one length."""
        ...

    def digest(self, numbers: NDArray[np.int64]) -> str:
        """16 hexadecimal digits of what is scored in these windows, whatever their order: equal
        for two measurements of the same targets."""
        ...


class StreamWindows:
    """Windows of a stream of tokens; no target is scored in two of them."""

    def __init__(self, text: TokenArray, spans: Spans) -> None:
        self.text = text
        self._start, self._first, self._stop = spans.reshape(-1, 3).T
        self.lengths = self._stop - self._start
        self.scored = self._stop - self._first

    def batch(self, numbers: NDArray[np.int64]) -> Batch:
        length = int(self.lengths[numbers[0]])
        start, first = (torch.from_numpy(of[numbers])[:, None] for of in (self._start, self._first))
        places = start.numpy() + np.arange(-1, length)
        tokens = self.text.tokens[np.maximum(places, 0)].astype(np.int64)
        tokens[places < 0] = self.text.end_of_text
        rows = torch.from_numpy(tokens)
        scored = start + torch.arange(length) >= first
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), scored)

    def digest(self, numbers: NDArray[np.int64]) -> str:
        """Over the places of the targets and their tokens, however the windows cut them."""
        ordered = np.sort(numbers[self.scored[numbers] > 0])
        ordered = ordered[np.argsort(self._first[ordered], kind="stable")]
        first, stop = self._first[ordered], self._stop[ordered]
        apart = np.flatnonzero(first[1:] != stop[:-1])
        starts = first[np.concatenate(([0], apart + 1))]
        ends = stop[np.concatenate((apart, [len(stop) - 1]))]
        found = hashlib.sha256()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            found.update(f"{start}:{end};".encode())
            found.update(self.text.tokens[start:end].astype("<u4").tobytes())
        return found.hexdigest()[:16]
