"""Multi-query associative recall (MQAR): pairs of key and value, then keys; which was the value?

Arora et al. 2023 (arXiv:2312.04927, section 3): the keys are distinct, the values need not be. A
sequence of T tokens has T / `pair_tokens` pairs, followed by as many queries, each a key and its
value in a slot of two tokens. Slots closer to the pairs are likelier, by the power law p(slot) ~
slot^(power - 1). The slots in between are blank (in the paper's code: random tokens, or zeros).
Every query may be for any of the pairs. The paper's code queries each pair once, but does not show
the answers to the model, from which the last one would follow by elimination.

    k3 v1 k0 v5 . . k0|v5 . . . . k3|v1 . .
"""

from dataclasses import dataclass

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.tasks.task import Example, Ints, SeededRandom, Task

BLANK, FIRST_KEY = 1, 2


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Task):
    """Size n: n pairs in n * `pair_tokens` tokens; keys and values are disjoint sets of symbols."""

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
    """Return `count` distinct slots, sampled one after another by the power law.

    Sampling without replacement by exponential races: the slot with the earliest arrival comes
    first (Efraimidis & Spirakis 2006).
    """
    rates = np.arange(1, slots + 1) ** (power - 1)
    return np.argsort(-np.log(random.uniform(slots)) / rates, kind="stable")[:count]
