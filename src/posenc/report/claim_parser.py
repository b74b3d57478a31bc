"""Parses the claims in an experiment's YAML; errors are raised before any training starts."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.identity import IDENTITY_FIELDS
from posenc.config.paths import groups, options
from posenc.config.settings import SPLITS
from posenc.config.values import canonical, matches_type
from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim import (
    COMPARISONS,
    CONFIDENCE,
    LONGEST,
    Claim,
    Clause,
    Length,
    TrainLengths,
    Value,
)
from posenc.report.quantities import QUANTITIES, Quantity

CLAUSE_KEYS = {"left", "is", "right"}
SHARED_KEYS = {"where", "margin", "confidence"}
CLAIM_KEYS = {"statement", "published", "all"}
ROW_KEYS = ("protocol", "stride", "swap", "split", "corpus")
RUN_KEYS = tuple({*IDENTITY_FIELDS, "data", "tokenizer"} - {"seed", "train_length"})


def parse_claims(value: Any) -> list[Claim]:
    """Return the claims of an experiment; docs/claims.md defines their grammar.

    Raises a single ConfigError listing the problems of all claims.
    """
    if not isinstance(value, list | None):
        raise ConfigError(f"claims={value!r} must be a list of claims; see docs/claims.md")
    claims, problems = [], []
    for i, item in enumerate(value or []):
        try:
            claims.append(_claim(item, f"claims[{i}]"))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return claims


def check_claims(value: Any, config_dirs: list[Path]) -> None:
    """Raise ConfigError if a claim cannot be parsed or names an unknown option."""
    for claim in parse_claims(value):
        for clause in claim.clauses:
            for side in (clause.left, clause.right):
                if isinstance(side, Value):
                    _check_options(side, config_dirs, f"claim {claim.statement!r}")


def parse_value(
    quantity: Quantity, selector: Mapping[str, Any], name: str, times: float = 1.0
) -> Value:
    """Return a quantity of the runs that `selector` selects.

    `name` is the key of the value in error messages. Raises ConfigError if a key of `selector`
    is not a selection key.
    """
    run_keys = {
        key: value
        for key, value in selector.items()
        if key.replace("/", ".").partition(".")[0] in RUN_KEYS
    }
    row_keys = {key: selector[key] for key in ROW_KEYS if key in selector}
    known = {*run_keys, *row_keys, "length", "train_length"}
    if unknown := selector.keys() - known:
        key, keys = min(unknown), ("length", "train_length", *ROW_KEYS, *sorted(RUN_KEYS))
        raise ConfigError(
            f"{name}: {key} is not a selection key{did_you_mean(key, keys)} (available:"
            f" {', '.join(keys)}, and nested keys such as encoding.spectrum.base)"
        )
    if quantity.source == "timing" and row_keys:
        raise ConfigError(
            f"{name}: {min(row_keys)} selects evaluation rows, but {quantity.name} is measured"
            " during training"
        )
    if quantity.source != "timing":
        row_keys = {"protocol": quantity.protocol, "swap": None, **row_keys}
    train_length = Length.parse(selector.get("train_length", "L"), f"{name}.train_length")
    length = _length(quantity, selector, name)
    return Value(quantity, canonical(run_keys), row_keys, train_length, length, times)


def require_mapping(value: Any, name: str, known: Iterable[str] | None = None) -> Mapping[str, Any]:
    """Return `value`, or an empty mapping if it is None.

    Raises ConfigError if `value` is not a mapping or has keys that are not in `known`.
    """
    if not isinstance(value, Mapping | None):
        raise ConfigError(f"{name}: {value!r} must be a mapping; see docs/claims.md")
    for key in value or ():
        if not isinstance(key, str) or (known is not None and key not in known):
            available = sorted(known or ("setting names",))
            hint = did_you_mean(str(key), available)
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
        raise ConfigError(f"{name}: {value!r} must be a number of tokens: an integer, 1 or more")
    return value


def _claim(item: Any, name: str) -> Claim:
    item = require_mapping(item, name, CLAIM_KEYS | CLAUSE_KEYS | SHARED_KEYS)
    statement, published = item.get("statement"), item.get("published")
    if not statement or not isinstance(statement, str) or not isinstance(published, str | None):
        raise ConfigError(
            f"{name}: statement={statement!r} and published={published!r} must be text"
        )
    shared = {key: item[key] for key in SHARED_KEYS & item.keys()}
    single = {key: item[key] for key in CLAUSE_KEYS & item.keys()}
    clauses = item.get("all", [single])
    if not isinstance(clauses, list) or not clauses or (single and "all" in item):
        raise ConfigError(f"{name}: give left, is and right, or a list of such clauses under `all`")
    return Claim(statement, tuple(_clause(c, shared, name) for c in clauses), published)


def _clause(item: Any, shared: Mapping[str, Any], name: str) -> Clause:
    item = require_mapping(item, name, CLAUSE_KEYS | SHARED_KEYS)
    if missing := sorted(CLAUSE_KEYS - item.keys()):
        raise ConfigError(f"{name}: missing {', '.join(missing)}; give left, is and right")
    where = {
        **require_mapping(shared.get("where"), name),
        **require_mapping(item.get("where"), name),
    }
    lengths = _train_lengths(where.pop("train_length", None), f"{name}.where.train_length")
    comparison = item["is"]
    if not isinstance(comparison, str) or comparison not in COMPARISONS:
        raise ConfigError(f"{name}.is: {comparison!r} must be one of {', '.join(COMPARISONS)}")
    left = _value(item["left"], where, f"{name}.left")
    if left.train_length.text != "L" or left.times != 1:
        raise ConfigError(
            f"{name}.left: L is the training length of the left side, so set train_length under"
            " `where`; set times on the right side"
        )
    right = _right(item["right"], left, where, f"{name}.right")
    values = {"margin": 0, "confidence": CONFIDENCE, **shared, **item}
    margin = require_number(values["margin"], 0, math.inf, f"{name}.margin")
    confidence = require_number(values["confidence"], 0.5, 1, f"{name}.confidence")
    if comparison == "equal" and not margin:
        raise ConfigError(
            f"{name}.margin: equal needs a margin above 0, because measurements are never exactly"
            " equal"
        )
    return Clause(left, comparison, right, lengths, margin, confidence)


def _right(item: Any, left: Value, where: Mapping[str, Any], name: str) -> Value | Length | float:
    if isinstance(item, Mapping):
        right = _value(item, where, name)
        if right.quantity != left.quantity:
            raise ConfigError(
                f"{name}: {right.quantity.name} cannot be compared with {left.quantity.name}; use"
                " the same quantity on both sides"
            )
        return right
    if left.quantity.name == "length_of_minimum":
        return Length.parse(item, name)
    if not matches_type(item, float) or (left.quantity.compared_as_ratio and item <= 0):
        above = " above 0" if left.quantity.compared_as_ratio else ""
        raise ConfigError(f"{name}: {item!r} must be a quantity or a number{above}")
    return float(item)


def _value(item: Any, where: Mapping[str, Any], name: str) -> Value:
    node = dict(require_mapping(item, name))
    times = require_number(node.pop("times", 1), 0, math.inf, f"{name}.times")
    if len(node) != 1 or (key := next(iter(node))) not in QUANTITIES or not times:
        hint = did_you_mean(str(next(iter(node), "")), QUANTITIES)
        raise ConfigError(
            f"{name}: {item!r} must have exactly one quantity{hint} (available:"
            f" {', '.join(QUANTITIES)}) and optionally `times`, a number above 0"
        )
    selector = {**where, **require_mapping(node[key], f"{name}.{key}")}
    return parse_value(QUANTITIES[key], selector, f"{name}.{key}", times)


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


def _train_lengths(value: Any, name: str) -> TrainLengths:
    if value is None:
        return TrainLengths()
    if isinstance(value, Mapping):
        limits = require_mapping(value, name, COMPARISONS.keys() - {"equal"})
        return TrainLengths(limits=tuple((k, require_tokens(n, name)) for k, n in limits.items()))
    listed = value if isinstance(value, list) else [value]
    if not listed:
        raise ConfigError(f"{name}: give at least one length, or omit the key to judge all lengths")
    return TrainLengths(listed=tuple(require_tokens(n, name) for n in listed))


def _check_options(value: Value, config_dirs: list[Path], name: str) -> None:
    """Raise ConfigError if a selector names an unknown option, protocol or split."""
    known = {key: list(options(key, config_dirs)) for key in value.selector if key in groups()}
    known |= {"protocol": list(PROTOCOLS), "split": list(SPLITS)}
    for key, option in {**value.selector, **value.row_keys}.items():
        if key in known and option not in known[key]:
            hint = did_you_mean(str(option), known[key])
            raise ConfigError(
                f"{name}: {key}={option!r} must be one of {', '.join(known[key])}{hint}"
            )
