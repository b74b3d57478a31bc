"""A value's selector, checked: the keys by which it names runs, rows and a length."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posenc.claims.grammar import Value
from posenc.claims.lengths import LONGEST, parse_length
from posenc.claims.quantities import Quantity
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.identity import IDENTITY_FIELDS
from posenc.config.paths import groups, options
from posenc.config.settings import SPLITS
from posenc.config.values import canonical
from posenc.evaluation.protocols import PROTOCOLS

OF_ROWS = ("protocol", "stride", "swap", "split", "corpus")
OF_RUNS = tuple({*IDENTITY_FIELDS, "data", "tokenizer"} - {"seed", "train_length"})


def parse_value(quantity: Quantity, given: Mapping[str, Any], times: float, name: str) -> Value:
    """The value of a quantity under a selector; ConfigError for a key that selects nothing."""
    of = {key: value for key, value in given.items() if _first(key) in OF_RUNS}
    rows = {key: given[key] for key in OF_ROWS if key in given}
    if strange := given.keys() - of.keys() - rows.keys() - {"length", "train_length"}:
        key, known = min(strange), ("length", "train_length", *OF_ROWS, *sorted(OF_RUNS))
        raise ConfigError(
            f"{name}: {key} selects nothing{did_you_mean(key, known)}; there are {', '.join(known)}"
            " and the keys inside them (encoding.spectrum.base)"
        )
    if quantity.source == "timing" and rows:
        raise ConfigError(f"{name}: {min(rows)} selects evaluation rows, this is read in training")
    if quantity.source != "timing":
        rows = {"protocol": quantity.protocol, "swap": None, **rows}
    train_length = parse_length(given.get("train_length", "L"), f"{name}.train_length")
    length = _length(quantity, given, name)
    return Value(quantity, canonical(of), rows, train_length, length, times)


def refuse_unknown_options(value: Value, config_dirs: list[Path], name: str) -> None:
    """ConfigError where a selector names an option, a protocol or a split that there is not."""
    known = {key: list(options(key, config_dirs)) for key in value.of if key in groups()}
    known |= {"protocol": list(PROTOCOLS), "split": list(SPLITS)}
    for key, option in {**value.of, **value.rows}.items():
        if key in known and option not in known[key]:
            hint = did_you_mean(str(option), known[key])
            raise ConfigError(
                f"{name}: {key}={option!r} must be one of {', '.join(known[key])}{hint}"
            )


def _length(quantity: Quantity, given: Mapping[str, Any], name: str) -> Any:
    if quantity.source != "row":
        if "length" in given:
            raise ConfigError(f"{name}: {quantity.name} is of no single length; leave length out")
        return None
    if "length" not in given:
        raise ConfigError(f"{name}: give the evaluation length, as L, 2L, L+50, 512 or longest")
    if given["length"] == LONGEST:
        return LONGEST
    return parse_length(given["length"], f"{name}.length")


def _first(key: str) -> str:
    return key.replace("/", ".").partition(".")[0]
