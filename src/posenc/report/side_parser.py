"""Parses the sides of a clause: quantities with selectors, and n-gram models."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.identity import IDENTITY_FIELDS
from posenc.config.values import canonical, matches_type
from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim_sides import LONGEST, Change, Length, Ngram, Side, Trend, Value
from posenc.report.quantities import QUANTITIES, Quantity

ROW_KEYS = ("protocol", "stride", "swap", "split", "corpus")
RUN_KEYS = tuple({*IDENTITY_FIELDS, "data", "tokenizer"} - {"seed", "train_length"})
SIDE_OPTIONS = ("times", "trend", "change_from", "fraction_of_published")
NGRAM_QUANTITIES = ("perplexity", "loss")


def parse_value(quantity: Quantity, selector: Mapping[str, Any], name: str) -> Value:
    """Return a quantity of the runs that `selector` selects.

    Error messages refer to the value as `name`. Raises ConfigError if `selector` has an
    unknown key, an invalid length, or a key that does not apply to the quantity.
    """
    run_keys = {
        key: value
        for key, value in selector.items()
        if key.replace("/", ".").partition(".")[0] in RUN_KEYS
    }
    if not matches_type(selector.get("tokens", 1), float):
        raise ConfigError(
            f"{name}: tokens={selector['tokens']!r} must be a number; for a list, add"
            f" `trend: tokens`"
        )
    row_keys = {key: selector[key] for key in ROW_KEYS if key in selector}
    known = {*run_keys, *row_keys, "length", "train_length"}
    if unknown := selector.keys() - known:
        key, keys = min(unknown), ("length", "train_length", *ROW_KEYS, *sorted(RUN_KEYS))
        raise ConfigError(
            f"{name}: unknown selector {key}{did_you_mean(key, keys)} (available:"
            f" {', '.join(keys)}, and nested keys such as encoding.spectrum.base)"
        )
    if quantity.source == "timing" and row_keys:
        raise ConfigError(
            f"{name}: {min(row_keys)} selects evaluation rows, but {quantity.name} is measured"
            " during training"
        )
    if quantity.source != "timing":
        row_keys = {"protocol": quantity.protocol, "swap": None, **row_keys}
        protocol = PROTOCOLS.get(str(row_keys["protocol"]))  # None if unknown; see check_claims
        if row_keys.get("stride") is not None and protocol and protocol.parameter is None:
            raise ConfigError(
                f"{name}: stride={row_keys['stride']!r} selects nothing, because the protocol"
                f" {row_keys['protocol']} has no stride; set protocol, or omit stride"
            )
    train_length = Length.parse(selector.get("train_length", "L"), f"{name}.train_length")
    length = _length(quantity, selector, name)
    return Value(quantity, canonical(run_keys), row_keys, train_length, length)


def parse_left(item: Any, where: Mapping[str, Any], name: str) -> Side:
    """Return the left side; raises ConfigError if it is invalid."""
    left, times = _side(item, where, name)
    if left.values[0].train_length.text != "L" or times != 1:
        raise ConfigError(
            f"{name}: train_length and times are not allowed on the left side; set train_length"
            " under `where`, and times on the right side"
        )
    return left


def parse_right(
    item: Any, left: Side, where: Mapping[str, Any], name: str
) -> tuple[Side | Ngram | Length | float, float]:
    """Return the right side and the factor `times`; raises ConfigError if they are invalid."""
    if isinstance(item, Mapping) and "ngram" in item:
        return _ngram(item, left, name), 1.0
    if isinstance(item, Mapping):
        right, times = _side(item, where, name)
        if (right.quantity, right.scale) != (left.quantity, left.scale):
            raise ConfigError(
                f"{name}: {right.quantity.name} cannot be compared with {left.quantity.name}"
                f" (units: {right.scale.unit}; {left.scale.unit}); use the same quantity and the"
                " same options on both sides"
            )
        return right, times
    if isinstance(left, Value) and left.quantity.name == "length_of_minimum":
        return Length.parse(item, name), 1.0
    limit = left.scale.lower_limit
    if not matches_type(item, float) or item <= limit:
        above = "" if limit == -math.inf else f" above {limit:g}"
        raise ConfigError(f"{name}: {item!r} must be a quantity or a number{above}")
    return float(item), 1.0


def _ngram(item: Mapping[str, Any], left: Side, name: str) -> Ngram:
    require_mapping(item, name, ["ngram"])
    if not isinstance(left, Value) or left.quantity.name not in NGRAM_QUANTITIES:
        raise ConfigError(
            f"{name}: ngram={item['ngram']!r} cannot be compared with {left}; n-gram models only"
            f" have {' and '.join(NGRAM_QUANTITIES)}"
        )
    if item["ngram"] == "best":
        return Ngram(None)
    if not matches_type(item["ngram"], int) or item["ngram"] < 2:
        raise ConfigError(
            f"{name}.ngram: {item['ngram']!r} must be an n-gram order of at least 2, such as 3, or"
            f" 'best'"
        )
    return Ngram(item["ngram"])


def _side(item: Any, where: Mapping[str, Any], name: str) -> tuple[Side, float]:
    node = dict(require_mapping(item, name))
    options = {key: node.pop(key) for key in SIDE_OPTIONS if key in node}
    times = require_number(options.get("times", 1), 0, math.inf, f"{name}.times")
    if not times:
        raise ConfigError(f"{name}.times: {options['times']!r} must be a number above 0")
    if len(node) != 1 or (key := next(iter(node))) not in QUANTITIES:
        hint = did_you_mean(str(next(iter(node), "")), QUANTITIES)
        raise ConfigError(
            f"{name}: {item!r} must have exactly one quantity{hint} (available:"
            f" {', '.join(QUANTITIES)}) and optionally {', '.join(SIDE_OPTIONS)}"
        )
    quantity, selector = QUANTITIES[key], {**where, **require_mapping(node[key], f"{name}.{key}")}
    if "trend" in options:
        if "fraction_of_published" in options:
            raise ConfigError(
                f"{name}: trend and fraction_of_published are mutually exclusive; remove one"
            )
        return _trend(options, quantity, selector, name), times
    value = parse_value(quantity, selector, f"{name}.{key}")
    if "change_from" in options:
        return _change(options, value, selector, name), times
    if "fraction_of_published" in options:
        raise ConfigError(
            f"{name}: fraction_of_published needs change_from, which selects the baseline"
        )
    return value, times


def _change(
    options: Mapping[str, Any], value: Value, selector: Mapping[str, Any], name: str
) -> Change:
    """Return the change from a baseline, which inherits keys that `change_from` does not set."""
    overrides = require_mapping(options["change_from"], f"{name}.change_from")
    baseline = parse_value(value.quantity, {**selector, **overrides}, f"{name}.change_from")
    if baseline == value:
        raise ConfigError(
            f"{name}.change_from: {dict(overrides)!r} selects the value itself; give a selector"
            " that differs, such as length: L"
        )
    if "fraction_of_published" not in options:
        return Change(value, baseline, None)
    pair, limit = options["fraction_of_published"], value.scale.lower_limit
    is_pair = matches_type(pair, list[float]) and len(pair) == 2 and min(pair) > limit
    if not is_pair or value.scale.to_scale(pair[0]) == value.scale.to_scale(pair[1]):
        above = "" if limit == -math.inf else f" above {limit:g}"
        raise ConfigError(
            f"{name}.fraction_of_published: {pair!r} must be two different numbers{above}, such as"
            " [18.73, 19.73]: the published value, then the published baseline"
        )
    return Change(value, baseline, (float(pair[0]), float(pair[1])))


def _trend(
    options: Mapping[str, Any], quantity: Quantity, selector: Mapping[str, Any], name: str
) -> Trend:
    """Return a trend over a key for which the selector has a list of at least two values.

    With the option `change_from`, it is a trend of changes.
    """
    key = options["trend"]
    points = selector.get(key) if isinstance(key, str) else None
    distinct = {str(point) for point in canonical(points)} if isinstance(points, list) else ()
    if not isinstance(points, list) or not 2 <= len(points) == len(distinct):
        raise ConfigError(
            f"{name}.trend: {key!r} must be length or a parameter whose selector is a list of two"
            f" or more different values, such as `length: [L, 2L, 4L]` (here: {points!r})"
        )
    selectors = [{**selector, key: point} for point in points]
    values = tuple(parse_value(quantity, s, f"{name}.{quantity.name}") for s in selectors)
    sides: tuple[Value, ...] | tuple[Change, ...] = values
    if "change_from" in options:
        pairs = zip(values, selectors, strict=True)
        sides = tuple(_change(options, value, s, name) for value, s in pairs)
    if key == "length":
        return Trend(key, sides)
    if key not in values[0].selector:
        raise ConfigError(
            f"{name}.trend: {key} is neither length nor a setting of the runs, such as tokens;"
            f" choose one of these"
        )
    if not matches_type(points, list[float]) or min(points) <= 0:
        raise ConfigError(
            f"{name}.trend: {key}={points!r} must be positive values of a numeric parameter of the"
            " runs, because the slope is with respect to their logarithm"
        )
    return Trend(key, sides, tuple(map(float, points)))


def _length(quantity: Quantity, selector: Mapping[str, Any], name: str) -> Any:
    if quantity.source != "row":
        if "length" in selector:
            raise ConfigError(f"{name}: {quantity.name} has no evaluation length; remove length")
        return None
    if "length" not in selector:
        raise ConfigError(f"{name}: give an evaluation length, such as L, 2L, L+50, 512 or longest")
    if selector["length"] == LONGEST:
        return LONGEST
    return Length.parse(selector["length"], f"{name}.length")


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
