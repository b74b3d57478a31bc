"""Passkey retrieval: a key hidden at any depth of a repeated filler, asked for at the end.

Mohtashami & Jaggi 2023 (2305.16300, section 4.2) hide a number in English sentences; here filler,
marker and key are tokens of any vocabulary, drawn anew and without repeats for each sequence, so
that the question (the marker) says nothing but where to look, and a language model can be asked
in its own tokens.

    f g h f | M N | 7 4 2 | g h f g h | M N | -> 7 4 2
"""

from dataclasses import dataclass, replace

import numpy as np

from posenc.config.errors import ConfigError
from posenc.data.tasks.draws import Draws
from posenc.data.tasks.task import BEGIN, Example, Task, answered


@dataclass(frozen=True, kw_only=True)
class Passkey(Task):
    """Size n: n tokens of filler around marker and key, marker and key; all lengths in tokens.

    The filler repeats itself every `filler` tokens, before the key and on after it. A `vocabulary`
    of None is that of the language model that is asked.
    """

    name = "passkey"
    vocabulary: int | None
    filler: int
    marker: int
    key: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.filler, self.marker, self.key) < 1:
            raise ValueError(
                f"filler={self.filler}, marker={self.marker} and key={self.key} must be 1 or more"
            )
        needed = self.filler + self.marker + self.key
        if self.vocabulary is not None and self.vocabulary < needed:
            raise ValueError(
                f"vocabulary={self.vocabulary} is less than filler + marker + key = {needed} tokens"
            )

    @property
    def _size(self) -> int:
        if self.vocabulary is None:
            raise ConfigError(
                "data.vocabulary=null is that of a trained run of text, in posenc evaluate; give"
                " data.vocabulary=64"
            )
        return self.vocabulary

    def in_tokens(self, count: int) -> "Passkey":
        if self.vocabulary is not None:
            raise ConfigError(
                f"data.vocabulary={self.vocabulary}: the run has tokens of its own; give"
                " data.vocabulary=null"
            )
        return replace(self, vocabulary=count)

    @property
    def symbols(self) -> tuple[str, ...]:
        return ("<begin>", *map(str, range(self._size)))

    def tokens(self, size: int) -> int:
        return size + 2 * (self.marker + self.key)

    def draw(self, draws: Draws, size: int) -> Example:
        depth = draws.one(size + 1)
        drawn = BEGIN + 1 + draws.distinct(self._size, self.filler + self.marker + self.key)
        phrase, marker, key = np.split(drawn, [self.filler, self.filler + self.marker])
        filler = np.resize(phrase, size)
        return answered(np.concatenate([filler[:depth], marker, key, filler[depth:], marker]), key)
