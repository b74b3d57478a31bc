"""Selectors of claims: the keys that name runs, evaluation rows and a length."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.identity import IDENTITY_FIELDS
from posenc.config.paths import groups, options
from posenc.config.settings import SPLITS
from posenc.config.values import canonical
from posenc.evaluation.protocols import PROTOCOLS
from posenc.report.claim import LONGEST, Length, Value
from posenc.report.quantities import Quantity

ROW_KEYS = ("protocol", "stride", "swap", "split", "corpus")
RUN_KEYS = tuple({*IDENTITY_FIELDS, "data", "tokenizer"} - {"seed", "train_length"})
Row = Mapping[str, Any]


class Run(Protocol):
    """One run: its frozen configuration, its evaluation rows (none until its training is over)
    and the lines of its timing.jsonl."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def timing(self) -> Sequence[Row]: ...


def parse_value(quantity: Quantity, selector: Mapping[str, Any], times: float, name: str) -> Value:
    """Return a quantity under a selector; raise ConfigError for a key that selects nothing."""
    run_keys = {key: value for key, value in selector.items() if _top_level(key) in RUN_KEYS}
    row_keys = {key: selector[key] for key in ROW_KEYS if key in selector}
    known = {*run_keys, *row_keys, "length", "train_length"}
    if unknown := selector.keys() - known:
        key, keys = min(unknown), ("length", "train_length", *ROW_KEYS, *sorted(RUN_KEYS))
        raise ConfigError(
            f"{name}: {key} selects nothing{did_you_mean(key, keys)} (available:"
            f" {', '.join(keys)}, and the keys inside them, as encoding.spectrum.base)"
        )
    if quantity.source == "timing" and row_keys:
        raise ConfigError(
            f"{name}: {min(row_keys)} selects evaluation rows; {quantity.name} is measured in"
            " training"
        )
    if quantity.source != "timing":
        row_keys = {"protocol": quantity.protocol, "swap": None, **row_keys}
    train_length = Length.parse(selector.get("train_length", "L"), f"{name}.train_length")
    length = _length(quantity, selector, name)
    return Value(quantity, canonical(run_keys), row_keys, train_length, length, times)


def check_options(value: Value, config_dirs: list[Path], name: str) -> None:
    """Raise ConfigError where a selector names an unknown option, protocol or split."""
    known = {key: list(options(key, config_dirs)) for key in value.selector if key in groups()}
    known |= {"protocol": list(PROTOCOLS), "split": list(SPLITS)}
    for key, option in {**value.selector, **value.row_keys}.items():
        if key in known and option not in known[key]:
            hint = did_you_mean(str(option), known[key])
            raise ConfigError(
                f"{name}: {key}={option!r} must be one of {', '.join(known[key])}{hint}"
            )


def matches(config: Mapping[str, Any], selector: Mapping[str, Any]) -> bool:
    """Whether a run's configuration has every value of a selector."""
    return all(_has(config, key, value) for key, value in selector.items())


def select_rows(value: Value, run: Run) -> list[Row]:
    """Return the rows of a run that a value's keys select, at every length.

    The default corpus is the run's own data, the default split the one it was to be evaluated on.
    """
    keys = {"split": run.config["evaluation"]["split"], **value.row_keys}
    corpus = keys.pop("corpus", None)
    keys |= {"data_name": corpus} if corpus else {"data": run.config["frozen"]["fingerprint"]}
    return [row for row in run.rows if all(row[key] == keys[key] for key in keys)]


def _has(config: Mapping[str, Any], key: str, value: Any) -> bool:
    if key in config["choices"]:
        return config["choices"][key] == value
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return canonical(node) == value


def _length(quantity: Quantity, selector: Mapping[str, Any], name: str) -> Any:
    if quantity.source != "row":
        if "length" in selector:
            raise ConfigError(f"{name}: {quantity.name} has no single length; leave length out")
        return None
    if "length" not in selector:
        raise ConfigError(f"{name}: give the evaluation length, as L, 2L, L+50, 512 or longest")
    if selector["length"] == LONGEST:
        return LONGEST
    return Length.parse(selector["length"], f"{name}.length")


def _top_level(key: str) -> str:
    return key.replace("/", ".").partition(".")[0]
