"""Parses the claims and premises in an experiment's YAML, before training and for a report."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import groups, option_files
from posenc.config.settings import SPLITS
from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim import Claim, Clause, TrainLengths
from posenc.report.claim_sides import Value
from posenc.report.confidence import CONFIDENCE
from posenc.report.outcome import COMPARISONS, NEEDS_MARGIN
from posenc.report.side_parser import (
    parse_left,
    parse_right,
    require_mapping,
    require_number,
    require_tokens,
)

CLAUSE_KEYS = {"left", "is", "right"}
SHARED_KEYS = {"where", "margin", "confidence"}
CLAIM_KEYS = {"statement", "published", "all"}


def parse_claims(value: Any, key: str = "claims") -> list[Claim]:
    """Return the claims of an experiment; docs/claims.md defines their grammar.

    `key` is their key in the YAML: `claims`, or `premises`, which have the same grammar. Raises a
    single ConfigError that lists the problems of all claims.
    """
    if not isinstance(value, list | None):
        raise ConfigError(f"{key}={value!r} must be a list of claims; see docs/claims.md")
    claims, problems = [], []
    for i, item in enumerate(value or []):
        try:
            claims.append(_claim(item, f"{key}[{i}]"))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return claims


def check_claims(value: Any, config_dirs: list[Path], key: str = "claims") -> None:
    """Raise ConfigError if a claim cannot be parsed or names an unknown option."""
    known = {"protocol": list(PROTOCOLS), "split": list(SPLITS)}
    for claim in parse_claims(value, key):
        for item in (item for clause in claim.clauses for item in clause.values):
            for group in item.selector.keys() & set(groups()) - known.keys():
                known[group] = list(option_files(group, config_dirs))
            _check_options(item, known, f"{key}: {claim.statement!r}")


def _claim(item: Any, name: str) -> Claim:
    item = require_mapping(item, name, CLAIM_KEYS | CLAUSE_KEYS | SHARED_KEYS)
    statement, published = item.get("statement"), item.get("published")
    if not statement or not isinstance(statement, str) or not isinstance(published, str | None):
        raise ConfigError(
            f"{name}: statement={statement!r} must be a non-empty string, and"
            f" published={published!r} a string or omitted"
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
        **require_mapping(shared.get("where"), f"{name}.where"),
        **require_mapping(item.get("where"), f"{name}.where"),
    }
    lengths = _train_lengths(where.pop("train_length", None), f"{name}.where.train_length")
    comparison = item["is"]
    if not isinstance(comparison, str) or comparison not in COMPARISONS:
        raise ConfigError(f"{name}.is: {comparison!r} must be one of {', '.join(COMPARISONS)}")
    left = parse_left(item["left"], where, f"{name}.left")
    right, times = parse_right(item["right"], left, where, f"{name}.right")
    values = {"margin": 0, "confidence": CONFIDENCE, **shared, **item}
    margin = require_number(values["margin"], 0, math.inf, f"{name}.margin")
    confidence = require_number(values["confidence"], 0.5, 0.9999, f"{name}.confidence")
    if comparison in NEEDS_MARGIN and not margin:
        example = "0.01 (1%)" if left.scale.is_relative else f"0.01 ({left.scale.unit})"
        raise ConfigError(
            f"{name}.margin: {values['margin']!r} must be above 0 for {comparison}, because with a"
            f" margin of 0, equal results would always be undecided; set a margin such as {example}"
        )
    return Clause(left, comparison, right, times, lengths, margin, confidence)


def _train_lengths(value: Any, name: str) -> TrainLengths:
    if value is None:
        return TrainLengths()
    if isinstance(value, Mapping):
        limits = require_mapping(value, name, COMPARISONS.keys() - {"equal"})
        return TrainLengths(limits=tuple((k, require_tokens(n, name)) for k, n in limits.items()))
    listed = value if isinstance(value, list) else [value]
    if not listed:
        raise ConfigError(
            f"{name}: give at least one length, or omit the key to judge the claim at all lengths"
        )
    return TrainLengths(listed=tuple(require_tokens(n, name) for n in listed))


def _check_options(value: Value, known: Mapping[str, list[str]], name: str) -> None:
    """Raise ConfigError if a selector names an option, protocol or split that is not in `known`."""
    for key, option in {**value.selector, **value.row_keys}.items():
        if key in known and option not in known[key]:
            hint = did_you_mean(str(option), known[key])
            raise ConfigError(
                f"{name}: {key}={option!r} must be one of {', '.join(known[key])}{hint}"
            )
