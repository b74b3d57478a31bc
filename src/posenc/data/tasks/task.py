"""The interface of a task, which generates prompts of any size and the answers to them."""

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.config.errors import ConfigError
from posenc.config.user_sources import source_hash
from posenc.config.values import json_digest

Ints = NDArray[np.int64]

BOS = 0
"""The id of the symbol before every sequence (BOS), also used as padding after its end."""

_MAX_EXAMPLES = 100_000
_MAX_PARAMETER = 2**18
"""The largest value of an integer parameter, such as a vocabulary size or a number of pairs."""
_MAX_TOKENS = 2**28
"""The largest number of tokens in the examples of an evaluation length."""
_DIGEST_SIZES, _DIGEST_EXAMPLES_PER_SIZE = (1, 2), 16


class SeededRandom:
    """A random number generator that is seeded with strings and integers.

    It returns the same numbers in every NumPy version, because it uses only the raw bits of a bit
    generator, which NumPy keeps stable, unlike its distributions.
    """

    def __init__(self, *seed: str | int) -> None:
        digest = hashlib.sha256(":".join(map(str, seed)).encode()).digest()
        self._bits = np.random.PCG64(np.random.SeedSequence(int.from_bytes(digest[:16])))

    def integers(self, high: int, count: int) -> Ints:
        """Return `count` integers from 0 to `high` - 1, uniform to within 2^-32."""
        bits = self._bits.random_raw(count) >> np.uint64(32)
        return (bits * np.uint64(high) >> np.uint64(32)).astype(np.int64)

    def integer(self, high: int) -> int:
        """Return one integer from 0 to `high` - 1."""
        return int(self.integers(high, 1)[0])

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Return `count` uniform random numbers above 0 and, because of rounding, at most 1."""
        bits = (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64)
        return (bits + 0.5) * 2.0**-53

    def choice(self, high: int, count: int) -> Ints:
        """Return `count` distinct integers from 0 to `high` - 1, in random order."""
        return np.argsort(self._bits.random_raw(high), kind="stable")[:count]


class Example(NamedTuple):
    """The `tokens` [T] of a sequence, and a mask `scored` [T] of the tokens of the answer."""

    tokens: Ints
    scored: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Generates sequences of sizes 1, 2, ..., each a prompt followed by its answer.

    A sequence may also contain several questions, each followed by its answer. Each task defines
    what its size counts; lengths are in tokens. `examples` is the number of sequences evaluated at
    each length. Raises ValueError for invalid parameters.
    """

    name: ClassVar[str]
    examples: int

    def __post_init__(self) -> None:
        if not 1 <= self.examples <= _MAX_EXAMPLES:
            raise ValueError(
                f"examples={self.examples} must be from 1 to {_MAX_EXAMPLES:,}, because all"
                f" examples of an evaluation length are held in memory at once"
            )
        for name, value in asdict(self).items():
            if isinstance(value, int) and value > _MAX_PARAMETER:
                raise ValueError(f"{name}={value} must be at most {_MAX_PARAMETER:,}")

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The vocabulary in the order of ids, starting with the symbol of `BOS`."""

    @property
    def chance(self) -> float | None:
        """The accuracy of guessing each answer token at random (chance); None if unknown."""
        return None

    @abstractmethod
    def sequence_length(self, size: int) -> int:
        """Return the number of tokens in a sequence of `size`; it increases with `size`."""

    @abstractmethod
    def generate(self, random: SeededRandom, size: int) -> Example:
        """Return a random sequence of `sequence_length(size)` tokens."""

    def largest_size(self, length: int) -> int:
        """Return the largest size whose sequences have at most `length` tokens.

        Raises ConfigError if there is none, or if the examples would have too many tokens.
        """
        if self.examples * length > _MAX_TOKENS:
            raise ConfigError(
                f"{self.examples} examples of {length} tokens of the task '{self.name}' have more"
                f" than {_MAX_TOKENS:,} tokens; use shorter lengths or fewer data.examples"
            )
        sizes = range(1, length + 1)  # a sequence has at least as many tokens as its size
        size = bisect_right(sizes, length, key=self.sequence_length)
        if size == 0:
            raise ConfigError(
                f"length {length} is too short for the task '{self.name}', whose shortest sequence"
                f" has {self.sequence_length(1)} tokens; use longer lengths"
            )
        return size

    def for_language_model(self, vocab_size: int) -> "Task":
        """Return the task with the vocabulary of a language model.

        Raises ConfigError if the task needs its own symbols.
        """
        raise ConfigError(
            f"the task '{self.name}' has its own symbols, which are not in the vocabulary of a"
            " model trained on text; use a run trained on the task, or data=task_passkey"
            " data.vocab_size=null"
        )

    def digest(self) -> str:
        """Return a hash of the parameters and a sample of the generated sequences.

        For a task outside posenc, the hash also covers its source code.
        """
        sample = [
            self.generate(SeededRandom("sample", size, number), size).tokens.tolist()
            for size in _DIGEST_SIZES
            for number in range(_DIGEST_EXAMPLES_PER_SIZE)
        ]
        parts = [self.name, asdict(self), sample]
        module, name = type(self).__module__, type(self).__qualname__
        if not module.startswith("posenc."):
            parts += [name, source_hash(f"{module}.{name}")]
        return json_digest(parts)


def prompt_and_answer(prompt: Ints, answer: Ints) -> Example:
    """Return the prompt [P] followed by the answer [A]; only the answer is scored."""
    tokens = np.concatenate([prompt, answer])
    return Example(tokens, np.arange(len(tokens)) >= len(prompt))
