"""Type checks and the canonical form of plain configuration values."""

import math
from collections.abc import Iterator
from typing import Any

from typeguard import CollectionCheckStrategy, TypeCheckError, check_type


def matches_type(value: Any, annotation: Any) -> bool:
    """Whether `value` has the annotated type; bools are not numbers, and numbers must be finite."""
    if next(nonfinite(value), None) or (isinstance(value, bool) and not _accepts_bool(annotation)):
        return False
    try:
        check_type(value, annotation, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
    except TypeCheckError:
        return False
    return True


def canonical(value: Any) -> Any:
    """Return `value` with integral floats as ints, so that 5e6 and 5000000 give the same run."""
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def nonfinite(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the dotted path and value of every NaN and infinity in nested containers."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from nonfinite(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, float) and not math.isfinite(value):
        yield path, value


def _accepts_bool(annotation: Any) -> bool:
    return annotation is Any or "bool" in str(annotation)
