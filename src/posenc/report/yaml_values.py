"""Validates values in an experiment's YAML; errors show the value and what is allowed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.values import matches_type


def require_mapping(value: Any, name: str, known: Iterable[str] | None = None) -> Mapping[str, Any]:
    """Return `value`, or an empty mapping if it is None.

    Raises ConfigError if `value` is not a mapping, or if a key is not a string or not in `known`.
    """
    if not isinstance(value, Mapping | None):
        raise ConfigError(f"{name}: {value!r} must be a mapping; see docs/claims.md")
    for key in value or ():
        if not isinstance(key, str):
            raise ConfigError(f"{name}: key {key!r} must be a string")
        if known is not None and key not in known:
            available = sorted(known)
            hint = did_you_mean(key, available)
            raise ConfigError(
                f"{name}: unknown key {key!r}{hint} (available: {', '.join(available)})"
            )
    return value or {}


def require_number(value: Any, low: float, high: float, name: str) -> float:
    """Return `value` as a float; raises ConfigError unless it is a number in [low, high)."""
    if not matches_type(value, float) or not low <= value < high:
        upper = "" if high == math.inf else f" and below {high:g}"
        raise ConfigError(f"{name}: {value!r} must be a number that is at least {low:g}{upper}")
    return float(value)


def require_tokens(value: Any, name: str) -> int:
    """Return `value`; raises ConfigError unless it is a positive integer."""
    if not matches_type(value, int) or value < 1:
        raise ConfigError(f"{name}: {value!r} must be a number of tokens (a positive integer)")
    return value
