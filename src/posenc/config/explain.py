"""What Hydra's errors mean to the person who typed the overrides."""

import re
from collections.abc import Callable, Sequence

from hydra.errors import (
    ConfigCompositionException,
    MissingConfigException,
    OverrideParseException,
)

from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.paths import groups

Keys = Callable[[Sequence[str]], list[str]]
"""Chosen group options -> every key that there is under them."""


def unknown_option(error: MissingConfigException) -> ConfigError:
    """An option that its group does not have."""
    missing = error.missing_cfg_file or ""
    group, _, option = missing.rpartition("/")
    options = list(error.options or [])
    if not options:
        return ConfigError(first_line(error))
    return ConfigError(
        f"{group}={option}: there is no such option{did_you_mean(option, options)};"
        f" there are {', '.join(options)}"
    )


def unknown_key(
    error: ConfigCompositionException, overrides: Sequence[str], keys_under: Keys
) -> ConfigError:
    """A key that the composed configuration does not have."""
    match = re.search(
        r"Could not (?:override|append to|delete from) ?(?:config\.)? ?'([^']+)'", str(error)
    )
    if match is None or str(error).startswith("In '"):  # what a file's own defaults override
        return ConfigError(first_line(error))
    key = match.group(1)
    chosen = [o for o in overrides if key_of(o) in groups() and o.partition("=")[0] != key]
    known = [*groups(), *keys_under(chosen)]
    hint = did_you_mean(key, [name for name in known if name != key])
    under = next((f" under {o}" for o in chosen if key.startswith(f"{key_of(o)}.")), "")
    return ConfigError(
        f"{key}: there is no such key{under}{hint}; `posenc train --cfg` prints all of train's"
    )


def unreadable(error: OverrideParseException) -> ConfigError:
    """An override outside Hydra's grammar."""
    return ConfigError(
        f"{error.override!r} cannot be read ({first_line(error)}); overrides look like key=value,"
        f" quoted from the shell: 'key=[1,2]'"
    )


def first_line(error: BaseException) -> str:
    """What an error says before its details."""
    return str(error).strip().split("\n", 1)[0]


def root_of(override: str) -> str:
    """The first part of the key that an override sets, which a config's own keys are."""
    return re.split(r"[./]", key_of(override), maxsplit=1)[0]


def key_of(override: str) -> str:
    """The key that an override of Hydra's grammar sets, without package or prefix."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0]
