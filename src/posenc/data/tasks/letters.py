"""Tasks whose symbols are letters of an alphabet."""

from dataclasses import dataclass
from typing import ClassVar

from posenc.data.tasks.task import Task

SEPARATOR, LETTERS = 1, 2
"""The id of the symbol between prompt and answer, and that of the first letter."""


def symbols_of(letters: int, *more: str) -> tuple[str, ...]:
    """The beginning, the separator, the letters by number, and `more`."""
    return ("<begin>", "=", *map(str, range(letters)), *more)


@dataclass(frozen=True, kw_only=True)
class LetterTask(Task):
    """An alphabet of `letters`, 2 or more, and the symbols `more`."""

    more: ClassVar[tuple[str, ...]] = ()
    letters: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.letters < 2:
            raise ValueError(f"letters={self.letters} must be 2 or more")

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_of(self.letters, *self.more)
