"""One form for every number, so that 5e6 and 5000000 name the same run."""

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
