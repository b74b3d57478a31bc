"""Tasks that ask something of a random string."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from posenc.data.tasks.draws import Draws, Ints
from posenc.data.tasks.letters import LETTERS, SEPARATOR, LetterTask
from posenc.data.tasks.task import Example, answered


@dataclass(frozen=True, kw_only=True)
class StringTask(LetterTask):
    """A string of `size` letters, each uniform among `letters`, the separator, and the answer."""

    @abstractmethod
    def answer(self, string: Ints) -> Ints:
        """The answer to a string of ids."""

    def draw(self, draws: Draws, size: int) -> Example:
        string = LETTERS + draws.below(self.letters, size)
        return answered(np.append(string, SEPARATOR), self.answer(string))
