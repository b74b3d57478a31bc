"""Evaluation windows with their scored targets, and budgets that limit how many are scored."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from torch import Tensor

from posenc.data.dataset import Examples, TokenArray

INVERSE_GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Batch:
    """Windows of one length: int64 `inputs` and `targets` [B, T], and a mask `scored` [B, T].

    `starts` [B] are the positions of each window's first target in the text; empty for a task.
    """

    inputs: Tensor
    targets: Tensor
    scored: Tensor
    starts: NDArray[np.int64]


class TokenWindows:
    """Windows of a token array; no target is scored in more than one window.

    `lengths` and `num_scored` are the numbers of tokens and of scored targets of each window.
    """

    def __init__(self, text: TokenArray, spans: NDArray[np.int64]) -> None:
        self.text = text
        self._start, self._first_scored, self._stop = spans.reshape(-1, 3).T
        self.lengths = self._stop - self._start
        self.num_scored = self._stop - self._first_scored

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        """Return the windows with these indices, which must have equal lengths."""
        length = int(self.lengths[indices[0]])
        start, first_scored = self._start[indices], self._first_scored[indices]
        inputs, targets = self.text.windows(start, length)
        scored = start[:, None] + np.arange(length) >= first_scored[:, None]
        return Batch(inputs, targets, torch.from_numpy(scored), start)

    def digest(self, indices: NDArray[np.int64]) -> str:
        """Return a hash (16 hexadecimal digits) of the positions and tokens of the scored targets.

        Adjacent spans are joined first, so it does not depend on how the targets are divided into
        windows.
        """
        ordered = np.sort(indices[self.num_scored[indices] > 0])
        ordered = ordered[np.argsort(self._first_scored[ordered], kind="stable")]
        first, stop = self._first_scored[ordered], self._stop[ordered]
        gaps = np.flatnonzero(first[1:] != stop[:-1])
        starts = first[np.concatenate(([0], gaps + 1))]
        ends = stop[np.concatenate((gaps, [len(stop) - 1]))]
        digest = hashlib.sha256()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            digest.update(f"{start}:{end};".encode())
            digest.update(self.text.tokens[start:end].astype("<u4").tobytes())
        return digest.hexdigest()[:16]


class TaskWindows:
    """Task sequences that fit the evaluation length, one per window; only the answers are scored.

    Besides the loss, a row has `accuracy`, the fraction of answer tokens that the model predicts
    (top-1, given the correct preceding tokens), and `exact`, the fraction of sequences in which it
    predicts all of them.
    """

    text: None = None

    def __init__(self, examples: Examples) -> None:
        self._examples = examples
        num_sequences, length = examples.tokens.shape
        self.lengths = np.full(num_sequences, length)
        self.num_scored = examples.scored.sum(axis=1)

    def batch(self, indices: NDArray[np.int64]) -> Batch:
        targets = torch.from_numpy(self._examples.tokens[indices])
        bos = torch.full((len(indices), 1), self._examples.bos_id)
        inputs = torch.cat([bos, targets[:, :-1]], dim=1)
        scored = torch.from_numpy(self._examples.scored[indices])
        return Batch(inputs, targets, scored, starts=np.empty(0, dtype=np.int64))

    def digest(self, indices: NDArray[np.int64]) -> str:
        tokens, scored = (array[np.sort(indices)] for array in self._examples[:2])
        return hashlib.sha256(tokens.astype("<u4").tobytes() + scored.tobytes()).hexdigest()[:16]


Windows = TokenWindows | TaskWindows
"""The windows that a protocol scores at one length, indexed from 0."""


@dataclass(frozen=True)
class Budget:
    """Limits on a measurement: at most `tokens` scored targets, and no new batch after `seconds`.

    None means no limit. At least one window is always scored.
    """

    seconds: float | None = None
    tokens: int | None = None

    @classmethod
    def from_config(cls, config: DictConfig) -> "Budget":
        """Return the budget of a configuration."""
        return cls(config.evaluation.budget_seconds, config.evaluation.budget_tokens)

    def order(self, windows: Windows) -> NDArray[np.int64]:
        """Return the indices of the windows to score, in the order in which to score them.

        With a budget, the windows are spread evenly over the split, no matter when scoring stops:
        the fractional parts of multiples of the inverse golden ratio are evenly distributed (Weyl
        1916).
        """
        indices = np.arange(len(windows.lengths))
        if self.tokens is not None and windows.num_scored.sum() > self.tokens:
            spread = _evenly_spread(len(indices))
            within_budget = np.cumsum(windows.num_scored[spread]) <= self.tokens
            within_budget[0] = True
            indices = np.sort(spread[within_budget])
        return indices if self.seconds is None else indices[_evenly_spread(len(indices))]

    def is_spent(self, seconds: float) -> bool:
        """Return whether the time budget is used up after `seconds`."""
        return self.seconds is not None and seconds >= self.seconds


def _evenly_spread(count: int) -> NDArray[np.int64]:
    """Return the indices below `count`, ordered so that every prefix is evenly spread."""
    return np.argsort(
        np.argsort((0.5 + np.arange(count) * INVERSE_GOLDEN_RATIO) % 1, kind="stable")
    )
