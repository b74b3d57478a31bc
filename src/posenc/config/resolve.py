"""Composition of overrides into plain values: resolved, canonical and without unknown keys."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.compose import compose, dotted_keys
from posenc.config.errors import ConfigError, did_you_mean, first_line
from posenc.config.paths import groups
from posenc.config.swaps import SWAP_GROUP, normalize_swaps
from posenc.config.values import canonical, is_nonfinite, walk


def compose_resolved(
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    defaults: DictConfig | None = None,
    *,
    drop_unknown: bool = False,
) -> dict[str, Any]:
    """Compose `overrides` and return the configuration as plain values.

    Its key `choices` maps each config group to its chosen option. `defaults` is the composed
    configuration without overrides, if the caller already has it. `drop_unknown` drops top-level
    keys that `defaults` does not have. Raises ConfigError for other unknown keys and for
    everything that `compose` and `resolve` reject.
    """
    defaults = defaults or compose(command, [], config_dirs)
    composed = compose(command, overrides, config_dirs, with_hydra=True)
    choices = composed.hydra.runtime.choices
    if "evaluation" in defaults:
        normalize_swaps(composed, choices.get(SWAP_GROUP), config_dirs)
    kept = [key for key in composed if (key in defaults if drop_unknown else key != "hydra")]
    values = canonical(resolve(OmegaConf.masked_copy(composed, kept)))
    for key in _unknown_keys(OmegaConf.create(values), defaults):
        if key not in groups():
            raise ConfigError(f"unknown key {key}{did_you_mean(key, dotted_keys(defaults))}")
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

    Raises ConfigError for missing values, unresolvable interpolations, NaN and infinity.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None
    for key, value in walk(plain):
        if is_nonfinite(value):
            raise ConfigError(f"{key}={value} must be a finite number")
    return plain


def _unknown_keys(config: DictConfig, defaults: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield the keys that `+key=` added, except inside components, which `check` validates."""
    for key in config:
        if key not in defaults:
            yield f"{prefix}{key}"
            continue
        child, default = config[key], defaults[key]
        if isinstance(child, DictConfig) and isinstance(default, DictConfig):
            is_component = "_target_" in child or "_target_" in default
            yield from [] if is_component else _unknown_keys(child, default, f"{prefix}{key}.")
