"""Passkey retrieval: a key hidden at a random depth in repeated filler, queried at the end.

Mohtashami & Jaggi 2023 (arXiv:2305.16300, section 4.2) hide a number in English sentences. Here
filler, marker and key are distinct random tokens of any vocabulary, so that the question (the
marker) reveals only where the key is, and a language model can be evaluated in its own vocabulary.

    f g h f  M N  7 4 2  g h f g h  M N | 7 4 2
"""

from dataclasses import dataclass, replace

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.tasks.task import BOS, Example, SeededRandom, Task, prompt_and_answer


@dataclass(frozen=True, kw_only=True)
class Passkey(Task):
    """Size n: n tokens of filler around a marker and the key, then the marker and the key again.

    The filler repeats every `filler_length` tokens and continues after the key. If `vocab_size` is
    None, the task uses the vocabulary of the language model that is evaluated on it.
    """

    name = "passkey"
    vocab_size: int | None
    filler_length: int
    marker_length: int
    key_length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.filler_length, self.marker_length, self.key_length) < 1:
            raise ValueError(
                f"filler_length={self.filler_length}, marker_length={self.marker_length} and"
                f" key_length={self.key_length} must be at least 1"
            )
        if self.vocab_size is not None and self.vocab_size < self._distinct_tokens:
            raise ValueError(
                f"vocab_size={self.vocab_size} is less than filler_length + marker_length +"
                f" key_length = {self._distinct_tokens} tokens"
            )

    @property
    def _distinct_tokens(self) -> int:
        return self.filler_length + self.marker_length + self.key_length

    def _required_vocab_size(self) -> int:
        if self.vocab_size is None:
            raise ConfigError(
                "data.vocab_size=null only works in posenc evaluate, with a run trained on text;"
                " set data.vocab_size=64"
            )
        return self.vocab_size

    def for_language_model(self, vocab_size: int) -> "Passkey":
        if self.vocab_size is not None:
            raise ConfigError(
                f"data.vocab_size={self.vocab_size}: the run has its own vocabulary; set"
                " data.vocab_size=null"
            )
        return replace(self, vocab_size=vocab_size)

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("<begin>", *map(str, range(self._required_vocab_size())))

    @property
    def chance(self) -> float | None:
        return None if self.vocab_size is None else 1 / self.vocab_size

    def sequence_length(self, size: int) -> int:
        return size + 2 * (self.marker_length + self.key_length)

    def generate(self, random: SeededRandom, size: int) -> Example:
        depth = random.integer(size + 1)
        tokens = BOS + 1 + random.choice(self._required_vocab_size(), self._distinct_tokens)
        ends = [self.filler_length, self.filler_length + self.marker_length]
        phrase, marker, key = np.split(tokens, ends)
        filler = np.resize(phrase, size)
        prompt = np.concatenate([filler[:depth], marker, key, filler[depth:], marker])
        return prompt_and_answer(prompt, key)
