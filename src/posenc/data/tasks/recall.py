"""Multi-query associative recall: pairs of key and value, then keys again; which was the value?

Arora et al. 2023 (2312.04927, section 3), MQAR: the keys differ, the values need not. A sequence of
T tokens has T / `pair_tokens` pairs; behind them come as many queries, in slots of two tokens,
nearer slots being likelier by the power law p(slot) ~ slot^(power - 1), each a key and its value.
The slots between hold blanks (the paper's code: random tokens, or zeros). Every query is for any of
the pairs: the paper's code asks for each once, but does not show the answers as a language model
sees them, where the last one would follow from the others.

    k3 v1 k0 v5 . . k0|v5 . . . . k3|v1 . .
"""

from dataclasses import dataclass

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.tasks.draws import Draws
from posenc.data.tasks.task import Example, Task

BLANK, KEYS = 1, 2


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Task):
    """Size n: n pairs in n `pair_tokens` tokens; keys and values have symbols of their own."""

    name = "mqar"
    keys: int
    values: int
    pair_tokens: int
    power: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys < 2 or self.values < 2 or self.power <= 0:
            raise ValueError(
                f"keys={self.keys} and values={self.values} must be 2 or more,"
                f" power={self.power} above 0"
            )
        if self.pair_tokens < 4 or self.pair_tokens % 2:
            raise ValueError(f"pair_tokens={self.pair_tokens} must be even and 4 or more")

    @property
    def symbols(self) -> tuple[str, ...]:
        keys, values = range(self.keys), range(self.values)
        return ("<begin>", ".", *(f"k{i}" for i in keys), *(f"v{i}" for i in values))

    def tokens(self, size: int) -> int:
        return size * self.pair_tokens

    def largest(self, length: int) -> int:
        size = super().largest(length)
        if size > self.keys:
            raise ConfigError(
                f"length {length} has {size} pairs, but data.keys={self.keys} of the task"
                f" '{self.name}' are all that differ; give data.keys={size} or shorter lengths"
            )
        return size

    def draw(self, draws: Draws, size: int) -> Example:
        keys = KEYS + draws.distinct(self.keys, size)
        values = KEYS + self.keys + draws.below(self.values, size)
        pairs = np.stack([keys, values], axis=1)
        slots = np.full((size * (self.pair_tokens // 2 - 1), 2), BLANK)
        asked = _slots(draws, len(slots), size, self.power)
        slots[asked] = pairs[draws.below(size, size)]
        scored = np.zeros((size + len(slots), 2), dtype=bool)
        scored[size + asked, 1] = True
        return Example(np.concatenate([pairs, slots]).ravel(), scored.ravel())


def _slots(draws: Draws, there: int, count: int, power: float) -> np.ndarray:
    """`count` different slots, drawn one after the other with the law's probabilities.

    By exponential clocks of those rates: the first to ring is the first drawn.
    """
    rates = np.arange(1, there + 1) ** (power - 1)
    return np.argsort(-np.log(draws.shares(there)) / rates, kind="stable")[:count]
