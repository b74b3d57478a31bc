"""Checks that every part of the grammar shares."""

from collections.abc import Iterable, Mapping
from typing import Any

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.values import matches_type


def mapping(given: Any, name: str, known: Iterable[str] | None = None) -> Mapping[str, Any]:
    """`given` as a mapping, empty for null; ConfigError for another, or for keys not `known`."""
    if not isinstance(given, Mapping | None):
        raise ConfigError(f"{name}: {given!r} must be a mapping; docs/claims.md has the grammar")
    for key in given or ():
        if not isinstance(key, str) or (known is not None and key not in known):
            there = sorted(known or ("names of settings",))
            hint = did_you_mean(str(key), there)
            raise ConfigError(f"{name}: {key!r} is no key here{hint}; there are {', '.join(there)}")
    return given or {}


def number(given: Any, low: float, high: float, name: str) -> float:
    """`given` as a number from `low` to below `high`; ConfigError for another."""
    if not matches_type(given, float) or not low <= given < high:
        limit = f"from {low:g}" + ("" if high == float("inf") else f" to below {high:g}")
        raise ConfigError(f"{name}: {given!r} must be a number {limit}")
    return float(given)


def tokens(given: Any, name: str) -> int:
    """`given` as a length in tokens; ConfigError for another."""
    if not matches_type(given, int) or given < 1:
        raise ConfigError(f"{name}: {given!r} must be a whole number of tokens, 1 or more")
    return given
