"""Lengths in tokens, told by the training length L."""

import re
from dataclasses import dataclass
from typing import Any

from posenc.config.errors import ConfigError

LONGEST = "longest"
FORM = re.compile(r"(?P<times>\d+(?:\.\d+)?)?L(?:/(?P<over>[1-9]\d*))?(?P<plus>[+-]\d+)?")


@dataclass(frozen=True)
class Length:
    """`factor` times L plus `plus`, in tokens; `text` as it was written."""

    text: str
    factor: float
    plus: int

    def at(self, train_length: int) -> int:
        return round(self.factor * train_length) + self.plus


def parse_length(given: Any, name: str) -> Length:
    """The length that `given` tells: 512, L, 2L, 1.5L, L/2, L+50, 2L-1; else ConfigError."""
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return Length(str(given), 0.0, given)
    found = FORM.fullmatch(str(given))
    if found is None:
        raise ConfigError(
            f"{name}: {given!r} is no length; give tokens (512) or an expression in the training"
            " length (L, 2L, L/2, L+50)"
        )
    factor = float(found["times"] or 1) / int(found["over"] or 1)
    return Length(found[0], factor, int(found["plus"] or 0))
