"""Multi-query associative recall (MQAR): key-value pairs, then keys; what is the value of each?

Arora et al. 2023 (arXiv:2312.04927, section 3). The keys are distinct; values may repeat (in the
paper's code, they do not). A sequence of T tokens has T / `pair_tokens` pairs, followed by as many
queries. A query is a key and its value, in a slot of two tokens. The slots of the queries are
sampled from the power law p(slot) ~ slot^(power - 1): if `power` is below 1, slots closer to the
pairs are more likely. Unused slots are blank (in the paper's code, random tokens or zeros). Each
query is for a random pair. The paper's code queries each pair once, but does not show the answers
to the model; if it did, the last answer would follow by elimination.

    k3 v1 k0 v5 . . k0|v5 . . . . k3|v1 . .
"""

from dataclasses import dataclass

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.tasks.task import BOS, Example, Ints, SeededRandom, Task

BLANK, FIRST_KEY = 1, 2


@dataclass(frozen=True, kw_only=True)
class AssociativeRecall(Task):
    """Size n: n pairs in n * `pair_tokens` tokens. No symbol is both a key and a value.

    If `keys` and `values` are None, each sequence draws its symbols from the vocabulary of the
    language model that is evaluated on it; half of them are keys, half are values.
    """

    name = "mqar"
    keys: int | None
    values: int | None
    pair_tokens: int
    power: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.keys is None) != (self.values is None):
            raise ValueError(
                f"keys={self.keys} and values={self.values}: set both to null, or neither"
            )
        if any(n is not None and n < 2 for n in (self.keys, self.values)) or self.power <= 0:
            raise ValueError(
                f"keys={self.keys} and values={self.values} must be at least 2, and"
                f" power={self.power} must be positive"
            )
        if self.pair_tokens < 4 or self.pair_tokens % 2:
            raise ValueError(f"pair_tokens={self.pair_tokens} must be even and at least 4")

    def _counts(self) -> tuple[int, int]:
        """Return the numbers of keys and values."""
        if self.keys is None or self.values is None:
            raise ConfigError(
                "data.keys=null and data.values=null only work in posenc evaluate, with a run"
                " trained on text; set data.keys=64 data.values=64"
            )
        return self.keys, self.values

    def for_language_model(self, vocab_size: int) -> "AssociativeRecall":
        if self.keys is not None:
            raise ConfigError(
                f"data.keys={self.keys} and data.values={self.values}: the run has its own"
                " vocabulary; set data.keys=null data.values=null"
            )
        count = (vocab_size - 1) // 2
        parameters = {**vars(self), "keys": count, "values": count}
        return RandomTokenRecall(**parameters, vocab_size=vocab_size)

    @property
    def symbols(self) -> tuple[str, ...]:
        keys, values = map(range, self._counts())
        return ("<begin>", ".", *(f"k{i}" for i in keys), *(f"v{i}" for i in values))

    @property
    def chance(self) -> float | None:
        return None if self.values is None else 1 / self.values

    def sequence_length(self, size: int) -> int:
        return size * self.pair_tokens

    def largest_size(self, length: int) -> int:
        size, (keys, _) = super().largest_size(length), self._counts()
        if size > keys:
            raise ConfigError(
                f"a sequence of length {length} has {size} pairs, but the task '{self.name}' has"
                f" only {keys} distinct keys; {self._remedy(length)} or use shorter lengths"
            )
        return size

    def _remedy(self, length: int) -> str:
        return f"set data.keys={length // self.pair_tokens}"

    def generate(self, random: SeededRandom, size: int) -> Example:
        num_keys, num_values = self._counts()
        keys = FIRST_KEY + random.choice(num_keys, size)
        values = FIRST_KEY + num_keys + random.integers(num_values, size)
        pairs = np.stack([keys, values], axis=1)
        slots = np.full((size * (self.pair_tokens // 2 - 1), 2), BLANK)
        queried = _query_slots(random, len(slots), size, self.power)
        slots[queried] = pairs[random.integers(size, size)]
        scored = np.zeros((size + len(slots), 2), dtype=bool)
        scored[size + queried, 1] = True
        return Example(np.concatenate([pairs, slots]).ravel(), scored.ravel())


@dataclass(frozen=True, kw_only=True)
class RandomTokenRecall(AssociativeRecall):
    """MQAR in which each sequence draws its blank, keys and values at random from a vocabulary."""

    vocab_size: int

    def generate(self, random: SeededRandom, size: int) -> Example:
        symbols, scored = super().generate(random, size)
        tokens = BOS + 1 + random.choice(self.vocab_size, 1 + sum(self._counts()))
        return Example(tokens[symbols - BLANK], scored)

    def _remedy(self, length: int) -> str:
        smallest = length // (self._counts()[0] + 1) + 1
        return f"set data.pair_tokens={smallest + smallest % 2}"


def _query_slots(random: SeededRandom, num_slots: int, count: int, power: float) -> Ints:
    """Return `count` distinct slots, sampled without replacement from the power law.

    Each slot arrives after an exponentially distributed time; the first `count` arrivals are the
    sample (Efraimidis & Spirakis 2006).
    """
    rates = np.arange(1, num_slots + 1) ** (power - 1)
    return np.argsort(-np.log(random.uniform(num_slots)) / rates, kind="stable")[:count]
