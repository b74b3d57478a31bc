"""What a task is: examples of every size, whose answers their prompts decide."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.config.errors import ConfigError
from posenc.data.digest import digest_of
from posenc.data.tasks.draws import Draws, Ints

BEGIN = 0
"""The symbol before every sequence and after its end."""

_SAMPLE_SIZES, _SAMPLE_EXAMPLES = (1, 2), 16


class Example(NamedTuple):
    """A sequence of symbols [T], and which of them [T] are answers."""

    tokens: Ints
    scored: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A family of sequences, prompt and answer, of sizes 1 and up.

    What a size counts is the task's own; the length of a sequence is in tokens. `examples` is
    how many are measured at each length. A knob that cannot be is a ValueError.
    """

    name: ClassVar[str]
    examples: int

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise ValueError(f"examples={self.examples} must be 1 or more")

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The vocabulary by id; `BEGIN` comes first."""

    @abstractmethod
    def tokens(self, size: int) -> int:
        """The length of a sequence of `size`, which grows with it."""

    @abstractmethod
    def draw(self, draws: Draws, size: int) -> Example:
        """A sequence of `tokens(size)` symbols."""

    def largest(self, length: int) -> int:
        """The largest size whose sequences have at most `length` tokens; ConfigError for none."""
        size = 0
        while self.tokens(size + 1) <= length:
            size += 1
        if size == 0:
            raise ConfigError(
                f"length {length} is too short for the task '{self.name}', whose shortest sequence"
                f" has {self.tokens(1)} tokens; give longer lengths"
            )
        return size

    def in_tokens(self, count: int) -> "Task":
        """The task in the `count` tokens of a language model; ConfigError where it cannot be."""
        raise ConfigError(
            f"the task '{self.name}' has symbols of its own, which a model of text does not know;"
            " give a run that was trained on it, or data=task_passkey data.vocabulary=null"
        )

    def digest(self) -> str:
        """Hash of the task: its knobs, and a sample of what it draws."""
        sample = [
            self.draw(Draws("sample", size, number), size).tokens.tolist()
            for size in _SAMPLE_SIZES
            for number in range(_SAMPLE_EXAMPLES)
        ]
        return digest_of([self.name, asdict(self), sample])


def answered(prompt: Ints, answer: Ints) -> Example:
    """The prompt [P] followed by the answer [A], which alone is scored."""
    tokens = np.concatenate([prompt, answer])
    return Example(tokens, np.arange(len(tokens)) >= len(prompt))
