"""Overrides in Hydra's grammar, parsed into one sweep axis per key."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override, Quote, QuotedString
from hydra.errors import OverrideParseException

from posenc.config.errors import ConfigError, first_line
from posenc.config.paths import options
from posenc.config.values import MAX_NESTING, canonical

RESERVED_WORDS = ("true", "false", "null", "inf", "nan")
"""Words that Hydra does not parse as strings unless they are quoted."""

MAX_JOBS = 10_000


class Setting(NamedTuple):
    """An override with a single value; `value` is canonical JSON, or None for a deletion."""

    override: str
    value: str | None

    @property
    def plain(self) -> Any:
        """The value as a plain object; None for a deletion."""
        return json.loads(self.value or "null")


class Axis(NamedTuple):
    """A key and its settings in a sweep."""

    key: str
    settings: tuple[Setting, ...]


MAX_KEY_LENGTH = 200
"""The maximum length of a key in characters; Hydra looks for a folder of this name."""


HYDRA_ALTERNATIVES = {
    "sweeper": "comma-separated values define a sweep, and `posenc tune` searches with Optuna",
    "run": "outputs_dir=... and name=... set where runs are written",
    "sweep": "outputs_dir=... and name=... set where runs are written",
    "job": "name=... names the experiment, and no command changes the working directory",
    "mode": "comma-separated values define a sweep",
    "searchpath": "--config-dir DIR adds a folder of YAML files",
    "callbacks": "callbacks=... takes Lightning callbacks",
    "output_subdir": "the configuration of a run is its config.yaml",
    **dict.fromkeys(
        ("verbose", "job_logging", "hydra_logging"), "the messages of a run are in its run.log"
    ),
}
"""The part after `hydra.` of a key that has no effect in posenc -> what to use instead."""


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parse overrides with Hydra's parser.

    Raises ConfigError for invalid syntax, and for settings of Hydra that would have no effect.
    """
    for override in overrides:
        key = override_key(override)
        is_launcher = key == "hydra/launcher" or key.startswith("hydra.launcher.")
        if key.startswith(("hydra.", "hydra/")) and not is_launcher:
            part = re.split(r"[./]", key)[1]
            alternative = HYDRA_ALTERNATIVES.get(
                part, "only hydra/launcher and its keys can be set"
            )
            raise ConfigError(f"{key} has no effect here; {alternative}")
        if len(key) > MAX_KEY_LENGTH:
            raise ConfigError(f"unknown key {key}: it has more than {MAX_KEY_LENGTH} characters")
        if _nesting(override) > MAX_NESTING:
            raise ConfigError(
                f"{override_key(override)}: the value has more than {MAX_NESTING} nested brackets"
            )
    return [_parse_override(override) for override in overrides]


@lru_cache(maxsize=MAX_JOBS)
def _parse_override(override: str) -> Override:
    """Parse one override; cached, because the jobs of a sweep share most of their overrides."""
    try:
        (parsed,) = OverridesParser.create().parse_overrides([override])
    except OverrideParseException as error:
        raise ConfigError(
            f"cannot parse {error.override!r} ({first_line(error)}); write overrides as key=value,"
            f" in quotes if the shell needs them: 'key=[1,2]'"
        ) from None
    except ValueError as error:  # an integer with more digits than Python converts
        raise ConfigError(f"cannot parse an override ({first_line(error)})") from None
    return parsed


def _nesting(text: str) -> int:
    """Return the largest number of brackets that are open at the same time."""
    steps = ((char in "[{(") - (char in "]})") for char in text)
    return max(accumulate(steps), default=0)


def override_key(override: str) -> str:
    """Return the key that an override sets, without its prefix (`+`, `~`) and package."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]


def positive_integer(key: str, text: str, limit: int) -> int:
    """Parse the value of a command-line key that `conf/` does not have, such as `trials`.

    Raises ConfigError unless it is a positive integer below `limit`.
    """
    if not re.fullmatch("[0-9]{1,18}", text) or not 0 < int(text) < limit:
        raise ConfigError(f"{key}={text} must be a positive integer below {limit:,}")
    return int(text)


def split_keys(overrides: Sequence[str], keys: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the values of `keys`, which `conf/` does not have, and the other overrides."""
    values = {override_key(o): o.partition("=")[2] for o in overrides if override_key(o) in keys}
    return values, [o for o in overrides if override_key(o) not in keys]


def root_key(override: str) -> str:
    """Return the first component of the key that an override sets."""
    return re.split(r"[./]", override_key(override), maxsplit=1)[0]


def command_line_axes(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> list[Axis]:
    """Return one axis per key of a command line; the last override of a key wins.

    `glob(...)` matches the options of config groups, including those in `config_dirs`.
    """
    last = {override.get_key_element(): override for override in parse(overrides)}
    return [Axis(_axis_key(o), tuple(_settings(o, config_dirs))) for o in last.values()]


def grid_axes(grid: Mapping[str, Any], name: str) -> list[Axis]:
    """Return the axes of a grid `{key: value or [value, ...]}`; `name` is for error messages."""
    axes = []
    for key, values in grid.items():
        values = list(values) if isinstance(values, list | tuple) else [values]
        if not values:
            raise ConfigError(f"{name}.{key} is an empty list; add at least one value")
        (override,) = parse([f"{key}=0"])
        settings = tuple(
            Setting(f"{key}={to_override_value(value, f'{name}.{key}')}", _to_json(value))
            for value in values
        )
        axes.append(Axis(_axis_key(override), settings))
    return axes


def check_job_count(count: int, source: str) -> None:
    """Raise ConfigError if the `count` jobs of `source` are too many to plan at once."""
    if count > MAX_JOBS:
        raise ConfigError(
            f"{source}: more than {MAX_JOBS:,} jobs, which take minutes to validate before the"
            f" first one starts; split the sweep into several commands"
        )


def to_override_value(value: Any, name: str) -> str:
    """Return `value` in override syntax, which Hydra parses back to the same value."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        is_plain_word = re.fullmatch(r"[A-Za-z_][\w./-]*", value, re.ASCII)
        if is_plain_word and value.lower() not in RESERVED_WORDS:
            return value
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list | tuple):
        return f"[{','.join(to_override_value(item, name) for item in value)}]"
    raise ConfigError(
        f"{name}: {value!r} must be a number, a string, true, false, null or a list of them;"
        f" write a nested key with a dot"
    )


def _settings(override: Override, config_dirs: Sequence[Path]) -> list[Setting]:
    line, key = str(override.input_line), override.get_key_element()
    if override.is_delete():
        return [Setting(line, None)]
    if not override.is_sweep_override():
        return [Setting(line, _to_json(override.value()))]
    items = getattr(override.value(), "list", None) or []
    if not override.is_discrete_sweep() or any(isinstance(i, IntervalSweep) for i in items):
        raise ConfigError(
            f"{line}: an interval cannot be enumerated; use range(...) or commas, or search"
            f" it with posenc tune"
        )
    sweep = override.value()
    if isinstance(sweep, Glob):
        values = _matching_options(override, sweep, config_dirs)
    else:
        try:
            values = list(islice(override.sweep_string_iterator(), MAX_JOBS + 1))
        except ValueError as error:  # such as a step of 0
            raise ConfigError(f"{line} has no values: {error}") from None
        check_job_count(len(values), line)
    if not values:
        raise ConfigError(f"{line} has no values; add at least one")
    single_overrides = parse([f"{key}={value}" for value in values])
    return [Setting(str(o.input_line), _to_json(o.value())) for o in single_overrides]


def _matching_options(override: Override, glob: Glob, config_dirs: Sequence[Path]) -> list[str]:
    names = sorted(options(override.key_or_group, config_dirs))
    if not names:
        raise ConfigError(f"{override.input_line}: {override.key_or_group} is not a config group")
    matches = glob.filter(names)
    if not matches:
        available = ", ".join(names)
        raise ConfigError(f"{override.input_line} matches no option (available: {available})")
    return matches


def _axis_key(override: Override) -> str:
    package = f"@{override.package}" if override.package else ""
    return f"{override.key_or_group}{package}"


def _to_json(value: Any) -> str:
    return json.dumps(canonical(value), sort_keys=True)
