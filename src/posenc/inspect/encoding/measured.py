"""One property of one encoding, measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from posenc.config.errors import one_line
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.findings import Cell


@dataclass(frozen=True)
class Measured:
    """`said` is what the `value` is of; where the property does not apply, None and why."""

    name: str
    value: Cell
    said: str


@dataclass(frozen=True)
class Property:
    """What measures properties that belong together; `names` are its columns in the matrix."""

    theme: str
    names: Sequence[str]
    measure: Callable[[Subject], list[Measured]]

    def of(self, subject: Subject) -> list[Measured]:
        """One Measured for each name; what the encoding refuses is said in its own words."""
        try:
            return self.measure(subject)
        except ValueError as refusal:
            said = one_line(refusal)
            return [Measured(name, None, f"refused: {said}") for name in self.names]


def inapplicable(names: Sequence[str], why: str) -> list[Measured]:
    """Nothing to measure under any of the names."""
    return [Measured(name, None, why) for name in names]
