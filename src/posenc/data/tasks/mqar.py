"""Multi-query associative recall (MQAR): key-value pairs, then keys; what is the value of each?

Arora et al. 2023 (arXiv:2312.04927, section 3): the keys are distinct, the values need not be. A
sequence of T tokens has T / `pair_tokens` pairs, followed by as many queries. A query is a key and
its value, in a slot of two tokens. Slots closer to the pairs are more likely, following the
power law p(slot) ~ slot^(power - 1). Unused slots are blank (in the paper's code: random tokens or
zeros). Each query is for a random pair. The paper's code queries each pair once, but does not show
the answers to the model; if it did, the last answer would follow by elimination.

    k3 v1 k0 v5 . . k0|v5 . . . . k3|v1 . .
"""

from dataclasses import dataclass

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.tasks.task import Example, Ints, SeededRandom, Task

BLANK, FIRST_KEY = 1, 2


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Task):
    """Size n: n pairs in n * `pair_tokens` tokens. No symbol is both a key and a value."""

    name = "mqar"
    keys: int
    values: int
    pair_tokens: int
    power: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys < 2 or self.values < 2 or self.power <= 0:
            raise ValueError(
                f"keys={self.keys} and values={self.values} must be at least 2, and"
                f" power={self.power} must be positive"
            )
        if self.pair_tokens < 4 or self.pair_tokens % 2:
            raise ValueError(f"pair_tokens={self.pair_tokens} must be even and at least 4")

    @property
    def symbols(self) -> tuple[str, ...]:
        keys, values = range(self.keys), range(self.values)
        return ("<begin>", ".", *(f"k{i}" for i in keys), *(f"v{i}" for i in values))

    @property
    def chance(self) -> float:
        return 1 / self.values

    def sequence_length(self, size: int) -> int:
        return size * self.pair_tokens

    def largest_size(self, length: int) -> int:
        size = super().largest_size(length)
        if size > self.keys:
            raise ConfigError(
                f"length {length} has {size} pairs, but the task '{self.name}' has only"
                f" data.keys={self.keys} distinct keys; set data.keys={size} or use shorter lengths"
            )
        return size

    def generate(self, random: SeededRandom, size: int) -> Example:
        keys = FIRST_KEY + random.choice(self.keys, size)
        values = FIRST_KEY + self.keys + random.integers(self.values, size)
        pairs = np.stack([keys, values], axis=1)
        slots = np.full((size * (self.pair_tokens // 2 - 1), 2), BLANK)
        queried = _query_slots(random, len(slots), size, self.power)
        slots[queried] = pairs[random.integers(size, size)]
        scored = np.zeros((size + len(slots), 2), dtype=bool)
        scored[size + queried, 1] = True
        return Example(np.concatenate([pairs, slots]).ravel(), scored.ravel())


def _query_slots(random: SeededRandom, slots: int, count: int, power: float) -> Ints:
    """Return `count` distinct slots, sampled without replacement from the power law.

    Each slot arrives after an exponentially distributed time; the first `count` arrivals are the
    sample (Efraimidis & Spirakis 2006).
    """
    rates = np.arange(1, slots + 1) ** (power - 1)
    return np.argsort(-np.log(random.uniform(slots)) / rates, kind="stable")[:count]
