"""Published curves as they stand in an experiment's YAML: perplexity by evaluation length."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posenc.claims.checks import number, tokens
from posenc.claims.quantities import QUANTITIES
from posenc.claims.selector import parse_value
from posenc.config.errors import ConfigError, did_you_mean

OWN = ("values", "unit", "source")
UNITS = ("perplexity", "loss", "accuracy")


@dataclass(frozen=True)
class Published:
    """A curve of the literature for the runs whose configuration agrees with `of`.

    `values` are by evaluation length in tokens, `rows` the keys of the rows they stand beside.
    """

    of: Mapping[str, Any]
    rows: Mapping[str, Any]
    train_length: int
    unit: str
    values: Mapping[int, float]
    source: str


def parse_published(given: Any) -> list[Published]:
    """The curves under `published`; ConfigError for what is none."""
    if not isinstance(given, list | None):
        raise ConfigError(f"published: {given!r} must be a list of curves; see docs/claims.md")
    return [_curve(one, f"published[{i}]") for i, one in enumerate(given or [])]


def _curve(given: Any, name: str) -> Published:
    if not isinstance(given, Mapping) or not {*OWN, "train_length"} <= given.keys():
        wanted = ", ".join((*OWN, "train_length"))
        raise ConfigError(f"{name}: {given!r} must be a mapping with {wanted} and a selector")
    if given["unit"] not in UNITS:
        hint = did_you_mean(str(given["unit"]), UNITS)
        raise ConfigError(f"{name}.unit: {given['unit']!r} must be one of {', '.join(UNITS)}{hint}")
    if not isinstance(given["source"], str):
        raise ConfigError(f"{name}.source: {given['source']!r} must be text")
    selector = {key: item for key, item in given.items() if key not in (*OWN, "train_length")}
    value = parse_value(QUANTITIES[given["unit"]], {**selector, "length": "L"}, 1.0, name)
    return Published(
        value.of,
        value.rows,
        tokens(given["train_length"], f"{name}.train_length"),
        given["unit"],
        _values(given["values"], f"{name}.values"),
        given["source"],
    )


def _values(given: Any, name: str) -> dict[int, float]:
    """Numbers by length; JSON has turned the lengths into texts."""
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{name}: {given!r} must be numbers by evaluation length")
    values = {}
    for at, measured in given.items():
        length = tokens(int(at) if str(at).isdigit() else at, name)
        values[length] = number(measured, 0, float("inf"), f"{name}.{at}")
    return values
