"""Claims as they stand in an experiment's YAML, checked before anything is trained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posenc.claims.checks import mapping, number, tokens
from posenc.claims.comparisons import COMPARISONS
from posenc.claims.grammar import Claim, Clause, TrainLengths, Value
from posenc.claims.lengths import Length, parse_length
from posenc.claims.quantities import QUANTITIES
from posenc.claims.selector import parse_value, refuse_unknown_options
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.values import matches_type

OF_A_CLAUSE = {"left", "is", "right"}
SHARED = {"where", "margin", "confidence"}
OF_A_CLAIM = {"says", "published", "all"}
CONFIDENCE = 0.95
ANY = float("inf")


def parse_claims(given: Any) -> list[Claim]:
    """The claims of an experiment, in the grammar of docs/claims.md.

    All complaints come in one ConfigError.
    """
    if not isinstance(given, list | None):
        raise ConfigError(f"claims={given!r} must be a list; docs/claims.md has the grammar")
    claims, complaints = [], []
    for i, one in enumerate(given or []):
        try:
            claims.append(_claim(one, f"claims[{i}]"))
        except ConfigError as error:
            complaints.append(str(error))
    if complaints:
        raise ConfigError("\n".join(complaints))
    return claims


def check_claims(given: Any, config_dirs: list[Path]) -> None:
    """ConfigError for claims that cannot be read or name options that there are not."""
    for claim in parse_claims(given):
        for value in (side for c in claim.clauses for side in (c.left, c.right)):
            if isinstance(value, Value):
                refuse_unknown_options(value, config_dirs, f"claim {claim.says!r}")


def _claim(given: Any, name: str) -> Claim:
    given = mapping(given, name, OF_A_CLAIM | OF_A_CLAUSE | SHARED)
    says, published = given.get("says"), given.get("published")
    if not says or not isinstance(says, str) or not isinstance(published, str | None):
        raise ConfigError(f"{name}: says={says!r} and published={published!r} must be sentences")
    shared = {key: given[key] for key in SHARED & given.keys()}
    own = {key: given[key] for key in OF_A_CLAUSE & given.keys()}
    clauses = given.get("all", [own])
    if not isinstance(clauses, list) or not clauses or (own and "all" in given):
        raise ConfigError(f"{name}: give left, is and right, or a list of such clauses under all")
    return Claim(says, tuple(_clause(one, shared, name) for one in clauses), published)


def _clause(given: Any, shared: Mapping[str, Any], name: str) -> Clause:
    given = mapping(given, name, OF_A_CLAUSE | SHARED)
    if lacking := sorted(OF_A_CLAUSE - given.keys()):
        raise ConfigError(f"{name}: {', '.join(lacking)} missing; give left, is and right")
    where = {**mapping(shared.get("where"), name), **mapping(given.get("where"), name)}
    trained = _train_lengths(where.pop("train_length", None), f"{name}.where.train_length")
    word = given["is"]
    if not isinstance(word, str) or word not in COMPARISONS:
        raise ConfigError(f"{name}.is: {word!r} must be one of {', '.join(COMPARISONS)}")
    left = _left(given["left"], where, f"{name}.left")
    right = _right(given["right"], left, where, f"{name}.right")
    values = {"margin": 0, "confidence": CONFIDENCE, **shared, **given}
    margin = number(values["margin"], 0, ANY, f"{name}.margin")
    confidence = number(values["confidence"], 0.5, 1, f"{name}.confidence")
    if word == "equal" and not margin:
        raise ConfigError(f"{name}.margin: equal needs one above 0; no two measurements are equal")
    return Clause(left, COMPARISONS[word], right, trained, margin, confidence)


def _left(given: Any, where: Mapping[str, Any], name: str) -> Value:
    left = _value(given, where, name)
    if left.train_length.text != "L" or left.times != 1:
        raise ConfigError(
            f"{name}: L is the length that the left side is trained at, so train_length stands"
            " under where; times belongs to the right side"
        )
    return left


def _right(given: Any, left: Value, where: Mapping[str, Any], name: str) -> Value | Length | float:
    if isinstance(given, Mapping):
        right = _value(given, where, name)
        if right.quantity != left.quantity:
            raise ConfigError(
                f"{name}: {right.quantity.name} is not comparable with {left.quantity.name}; give"
                " the same quantity on both sides"
            )
        return right
    if left.quantity.name == "length_of_minimum":
        return parse_length(given, name)
    if not matches_type(given, float) or (left.quantity.ratio and given <= 0):
        above = " above 0" if left.quantity.ratio else ""
        raise ConfigError(f"{name}: {given!r} must be a quantity or a number{above}")
    return float(given)


def _value(given: Any, where: Mapping[str, Any], name: str) -> Value:
    node = dict(mapping(given, name))
    times = number(node.pop("times", 1), 0, ANY, f"{name}.times")
    if len(node) != 1 or (key := next(iter(node))) not in QUANTITIES or not times:
        hint = did_you_mean(str(next(iter(node), "")), QUANTITIES)
        raise ConfigError(
            f"{name}: {given!r} must be one quantity{hint} of {', '.join(QUANTITIES)}, and may have"
            " times above 0"
        )
    selector = {**where, **mapping(node[key], f"{name}.{key}")}
    return parse_value(QUANTITIES[key], selector, times, f"{name}.{key}")


def _train_lengths(given: Any, name: str) -> TrainLengths:
    if given is None:
        return TrainLengths()
    if isinstance(given, Mapping):
        limits = mapping(given, name, COMPARISONS.keys() - {"equal"})
        return TrainLengths(
            limits=tuple((COMPARISONS[key], tokens(at, name)) for key, at in limits.items())
        )
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise ConfigError(f"{name}: give a length, or leave it out to judge at every one")
    return TrainLengths(given=tuple(tokens(at, name) for at in listed))
