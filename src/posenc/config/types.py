"""Whether a value is of the type that a signature asks for."""

import math
from typing import Any

from typeguard import CollectionCheckStrategy, TypeCheckError, check_type


def fits(value: Any, annotation: Any) -> bool:
    """As type checkers see it, and besides: true is no number, and numbers are finite."""
    if _has_nonfinite(value) or (isinstance(value, bool) and not _takes_bool(annotation)):
        return False
    try:
        check_type(value, annotation, collection_check_strategy=CollectionCheckStrategy.ALL_ITEMS)
    except TypeCheckError:
        return False
    return True


def _has_nonfinite(value: Any) -> bool:
    if isinstance(value, list):
        return any(_has_nonfinite(item) for item in value)
    return isinstance(value, float) and not math.isfinite(value)


def _takes_bool(annotation: Any) -> bool:
    return annotation is Any or "bool" in str(annotation)
