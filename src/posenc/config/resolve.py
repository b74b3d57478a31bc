"""Composition of overrides into plain values: resolved, canonical and without unknown keys."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.compose import Composer, dotted_keys
from posenc.config.errors import ConfigError, did_you_mean, first_line
from posenc.config.paths import groups, options
from posenc.config.settings import COMPONENTS, TYPES, check_settings, check_values
from posenc.config.swaps import SWAP_GROUP, custom_swaps, normalize_swaps
from posenc.config.values import canonical

OPTION_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*")


def compose_resolved(
    composer: Composer, overrides: Sequence[str], *, drop_unknown: bool = False
) -> dict[str, Any]:
    """Compose `overrides` and return the configuration as plain values.

    Its key `choices` maps each config group to its chosen option. `drop_unknown` drops top-level
    keys that the command's defaults do not have. Raises ConfigError for other unknown keys and for
    everything that `compose` and `resolve` reject.
    """
    config, choices = composer.compose(overrides)
    _check_names(choices)
    if "evaluation" in composer.defaults:
        try:
            if not OmegaConf.is_dict(config.evaluation):
                raise ConfigError(f"evaluation={config.evaluation} must be a mapping")
            normalize_swaps(config, choices.get(SWAP_GROUP), composer.config_dirs)
        except OmegaConfBaseException as error:  # an interpolation that cannot be resolved
            raise ConfigError(f"evaluation.swaps: {first_line(error)}") from None
    if drop_unknown:
        config = OmegaConf.masked_copy(config, [key for key in config if key in composer.defaults])
    values = canonical(resolve(config))
    _check_components(values, composer)
    for key in _unknown_keys(values, composer.default_values):
        if key not in groups():
            known = dotted_keys(composer.defaults)
            hint = did_you_mean(key, [k for k in known if k != key])
            if key in known:  # in a YAML file
                *parents, last = key.split(".")
                text = f"{last}: ..."
                for parent in reversed(parents):
                    text = f"{parent}: {{{text}}}"
                hint = f"; in a YAML file, write {text}"
            raise ConfigError(f"unknown key {key}{hint}")
    if custom := custom_swaps(values.get("evaluation") or {}):
        values["evaluation"]["custom_swaps"] = custom  # jobs do not read config directories
    return {
        **values,
        "choices": {
            group: option
            for group, option in choices.items()
            if option is not None and not group.startswith("hydra/")
        },
    }


def resolve(config: DictConfig) -> Any:
    """Return a configuration as plain containers with its interpolations resolved.

    Raises ConfigError for unresolvable interpolations and for what `check_values` rejects.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None
    check_values(plain)
    return plain


def _check_components(values: Mapping[str, Any], composer: Composer) -> None:
    """Raise ConfigError if the logger is missing, or a component or `modules` has a wrong type."""
    if "logger" in composer.defaults and not values.get("logger"):
        available = ", ".join(options("logger", composer.config_dirs))
        raise ConfigError(f"logger is missing; set logger= to one of: {available}")
    present = [key for key in (*COMPONENTS, "logger") if values.get(key) is not None]
    present += ["modules"] if "modules" in values else []
    for key in present:
        if isinstance(values[key], str) and values[key] in options(key, composer.config_dirs):
            raise ConfigError(
                f"{key}: {values[key]} does not select an option in a YAML file; write `override"
                f" /{key}: {values[key]}` in its defaults list, or add `{key}: [{values[key]}]` to"
                f" its grids"
            )
    check_settings(values, {key: TYPES[key] for key in present})


def _check_names(choices: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option whose name cannot be part of a file name or a label.

    Paths are also rejected, because they could lead to someone else's file.
    """
    for group, option in choices.items():
        if isinstance(option, str) and not OPTION_NAME.fullmatch(option):
            raise ConfigError(
                f"{group}={option}: the name of an option may contain only ASCII letters, digits,"
                f" '_', '+', '-' and '.', and must not begin with '.'; rename or move the file"
            )


def _unknown_keys(
    values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """Yield the keys that are not in `defaults`; components are left to `components.check`."""
    for key, value in values.items():
        if key not in defaults:
            yield f"{prefix}{key}"
            continue
        default = defaults[key]
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            is_component = "_target_" in value or "_target_" in default
            yield from [] if is_component else _unknown_keys(value, default, f"{prefix}{key}.")
