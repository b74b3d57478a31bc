"""Overrides in Hydra's grammar, taken apart into one axis a key."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString

from posenc.config.compose import parse
from posenc.config.errors import ConfigError
from posenc.config.numbers import canonical

Options = Callable[[str], list[str]]
"""Config group -> the names of its options."""

STEERING = ("experiment", "size", "grids", "sizes", "retry", "name", "outputs_dir")
RESERVED_WORDS = ("true", "false", "null", "inf", "nan")


class Setting(NamedTuple):
    """One override without a sweep, and its value as canonical JSON (None for a deletion)."""

    text: str
    value: str | None


class Axis(NamedTuple):
    """What a key is to take, one value after the other."""

    key: str
    settings: tuple[Setting, ...]


def command_axes(overrides: Sequence[str], options: Options | None = None) -> list[Axis]:
    """One axis for each key of a command line; a key that is given again replaces the first."""
    last = {override.get_key_element(): override for override in parse(overrides)}
    return [Axis(_key(o), tuple(_settings(o, options))) for o in last.values()]


def grid_axes(grid: Mapping[str, Any], name: str) -> list[Axis]:
    """The axes of a product `{key: [value, ...] or value}`; `name` is for messages."""
    axes = []
    for written, values in grid.items():
        values = list(values) if isinstance(values, list | tuple) else [values]
        if not values:
            raise ConfigError(f"{name}.{written} is an empty list; give at least one value")
        (override,) = parse([f"{written}=0"])
        texts = [f"{written}={render(value, f'{name}.{written}')}" for value in values]
        settings = (Setting(t, _canonical(v)) for t, v in zip(texts, values, strict=True))
        axes.append(Axis(_key(override), tuple(settings)))
    return axes


def steering(overrides: Sequence[str]) -> list[str]:
    """The overrides that a sweep has once: its experiment, size, folder, launcher."""
    steers = [o for o in parse(overrides) if o.key_or_group in STEERING or o.is_hydra_override()]
    for override in steers:
        if override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: one at a time; give a single value")
    return [str(override.input_line) for override in steers]


def render(value: Any, name: str) -> str:
    """`value` as the right-hand side of an override; Hydra reads the same value back."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w./-]*", value, re.ASCII)
        if plain and value.lower() not in RESERVED_WORDS:
            return value
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list | tuple):
        return f"[{','.join(render(item, name) for item in value)}]"
    raise ConfigError(
        f"{name}: {value!r} must be a number, a text, true, false, null or a list of them;"
        f" name a key inside a mapping with a dot"
    )


def _settings(override: Override, options: Options | None) -> list[Setting]:
    line, key = str(override.input_line), override.get_key_element()
    if override.is_delete():
        return [Setting(line, None)]
    if not override.is_sweep_override():
        return [Setting(line, _canonical(override.value()))]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{line}: an interval has no list of values; give range(...) or commas")
    values = _globbed(override, options) or list(override.sweep_string_iterator())
    if not values:
        raise ConfigError(f"{line} names no value; give at least one")
    texts = [f"{key}={value}" for value in values]
    return [Setting(text, _canonical(_value(text))) for text in texts]


def _globbed(override: Override, options: Options | None) -> list[str]:
    glob = override.value()
    if not isinstance(glob, Glob):
        return []
    names = options(override.key_or_group) if options else []
    if not (found := glob.filter(names)):
        there = f"there are {', '.join(names)}" if names else "it is no config group"
        raise ConfigError(f"{override.input_line} matches no option; {there}")
    return found


def _key(override: Override) -> str:
    return (
        f"{override.key_or_group}@{override.package}" if override.package else override.key_or_group
    )


def _value(text: str) -> Any:
    return OverridesParser.create().parse_override(text).value()


def _canonical(value: Any) -> str:
    return json.dumps(canonical(value), sort_keys=True)
