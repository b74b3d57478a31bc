"""Published curves in an experiment's YAML: perplexity, loss or accuracy by evaluation length."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posenc.config.errors import ConfigError, did_you_mean
from posenc.report.quantities import QUANTITIES
from posenc.report.side_parser import parse_value, require_number, require_tokens

CURVE_KEYS = ("values", "unit", "source", "train_length")
MAX_VALUE = 1e99
UNITS = ("perplexity", "loss", "accuracy")


@dataclass(frozen=True)
class PublishedCurve:
    """A curve from the literature, compared with the runs that match `selector`.

    `values` maps evaluation lengths in tokens to values in `unit`. They are compared with the
    evaluation rows that match `row_keys`.
    """

    selector: Mapping[str, Any]
    row_keys: Mapping[str, Any]
    train_length: int
    unit: str
    values: Mapping[int, float]
    source: str


def parse_published(value: Any) -> list[PublishedCurve]:
    """Return the curves under `published`. Raises ConfigError if an item is invalid."""
    if not isinstance(value, list | None):
        raise ConfigError(f"published: {value!r} must be a list of curves; see docs/claims.md")
    return [_parse_curve(item, f"published[{i}]") for i, item in enumerate(value or [])]


def _parse_curve(item: Any, name: str) -> PublishedCurve:
    if not isinstance(item, Mapping) or not {*CURVE_KEYS} <= item.keys():
        keys = ", ".join(CURVE_KEYS)
        raise ConfigError(f"{name}: {item!r} must be a mapping with {keys} and selectors")
    if item["unit"] not in UNITS:
        hint = did_you_mean(str(item["unit"]), UNITS)
        raise ConfigError(f"{name}.unit: {item['unit']!r} must be one of {', '.join(UNITS)}{hint}")
    if not isinstance(item["source"], str):
        raise ConfigError(f"{name}.source: {item['source']!r} must be a string")
    selector = {key: v for key, v in item.items() if key not in CURVE_KEYS}
    value = parse_value(QUANTITIES[item["unit"]], {**selector, "length": "L"}, name)
    return PublishedCurve(
        value.selector,
        value.row_keys,
        require_tokens(item["train_length"], f"{name}.train_length"),
        item["unit"],
        _parse_values(item["values"], item["unit"], f"{name}.values"),
        item["source"],
    )


def _parse_values(value: Any, unit: str, name: str) -> dict[int, float]:
    """Return the values by length; the lengths may be strings, as in JSON."""
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(f"{name}: {value!r} must map evaluation lengths to numbers")
    values = {}
    for key, number in value.items():
        is_number = re.fullmatch("[0-9]{1,18}", str(key))
        length = require_tokens(int(key) if is_number else key, name)
        minimum = 1 if unit == "perplexity" else 0
        values[length] = require_number(number, minimum, MAX_VALUE, f"{name}.{key}")
        if unit == "accuracy" and number > 1:
            raise ConfigError(f"{name}.{key}: {number} must be a fraction, at most 1")
    return values
