"""One form for every number, so that 5e6 and 5000000 name the same run."""

import math
from collections.abc import Iterator
from typing import Any


def canonical(value: Any) -> Any:
    """`value` with every whole float as an integer, in containers of any depth."""
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def nonfinite(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """The dotted path and value of every NaN and infinity, in containers of any depth."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from nonfinite(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, value
