"""Type checks and the canonical form of plain configuration values."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import GenericAlias, UnionType
from typing import Any

from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

MAX_INTEGER = 2**63 - 1
"""The largest integer, because PyTorch and NumPy store integers in 64 bits."""
MAX_NESTING = 50
"""The maximum nesting depth of a value; the parsers and OmegaConf fail on much deeper values."""

CONTAINERS = (dict, list, tuple, set)
UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML, and therefore an SVG figure, cannot contain, or that control a terminal."""

_ITEMS_ARE_NUMBERS = re.compile(r"^(?!.*\b(bool|Any)\b).*\b(int|float)\b")


def matches_type(value: Any, annotation: Any) -> bool:
    """Return whether `value` has the annotated type; bools do not count as numbers.

    Inf, NaN and integers of 2^63 or more in magnitude match no type.
    """
    types = annotation.__args__ if isinstance(annotation, UnionType) else (annotation,)
    try:
        if not is_representable(value) or (
            isinstance(value, CONTAINERS)
            and not all(is_representable(item) for _, item in walk(value))
        ):
            return False
        if type(value) in types or _is_list_of(value, types):
            return True  # typeguard takes a hundred times as long
        accepts_bool = annotation is Any or "bool" in str(annotation)
        if isinstance(value, bool) and not accepts_bool:
            return False
        has_bool = isinstance(value, CONTAINERS) and bool in {type(item) for _, item in walk(value)}
        if has_bool and _ITEMS_ARE_NUMBERS.search(str(annotation)):
            return False
        if isinstance(value, dict) and annotation in (dict, dict[str, Any]):  # only check keys
            return all(isinstance(key, str) for key in value) or annotation is dict
        check_type(value, annotation, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
    except (TypeCheckError, RecursionError):  # RecursionError: the value is nested too deeply
        return False
    return True


def _is_list_of(value: Any, types: Sequence[Any]) -> bool:
    """Whether `value` is a list of items of one class, and `types` contains that list type."""
    return type(value) is list and GenericAlias(list, (*{type(item) for item in value},)) in types


def canonical(value: Any) -> Any:
    """Return `value` with integral floats as ints, so that 5e6 and 5000000 give the same run."""
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of every item in nested mappings, sequences and sets."""
    if isinstance(value, CONTAINERS):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            child = f"{path}.{key}".lstrip(".")
            yield child, item
            if isinstance(item, CONTAINERS):
                yield from walk(item, child)


def wrong_types(values: Mapping[str, Any], types: Mapping[str, Any]) -> list[str]:
    """Return the keys in `values` that do not have the type in `types`; other keys are ignored."""
    return [key for key in types if key in values and not matches_type(values[key], types[key])]


def is_representable(value: Any) -> bool:
    """Return whether a number is finite and, if it is an integer, below 2^63 in magnitude."""
    if isinstance(value, int):
        return abs(value) <= MAX_INTEGER
    return not isinstance(value, float) or math.isfinite(value)


def is_printable(value: Any) -> bool:
    """Whether the keys and strings in nested values have only characters that can be printed."""
    texts = (text for path, item in walk([value]) for text in (path, item))
    return not any(isinstance(text, str) and UNPRINTABLE.search(text) for text in texts)


def json_digest(value: Any) -> str:
    """Return the SHA-256 (hex) of `value` as canonical JSON; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
