"""Composition of a command's overrides into plain values: resolved, canonical, no unknown keys."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.compose import compose, keys
from posenc.config.errors import ConfigError, did_you_mean, first_line
from posenc.config.paths import groups
from posenc.config.swaps import GROUP, normalize_swaps
from posenc.config.values import canonical, nonfinite


def compose_resolved(
    command: str,
    overrides: Sequence[str],
    config_dirs: Sequence[Path],
    known: DictConfig | None = None,
    *,
    only_known: bool = False,
) -> dict[str, Any]:
    """Compose `overrides` and return the configuration as plain values.

    Its key `choices` maps each config group to its chosen option. `known` is the composition
    without overrides, if the caller has it; with `only_known`, other top-level keys are dropped.
    Raises ConfigError for unknown keys and for everything that `compose` and `resolve` reject.
    """
    known = known or compose(command, [], config_dirs)
    composed = compose(command, overrides, config_dirs, with_hydra=True)
    choices = composed.hydra.runtime.choices
    if "evaluation" in known:
        normalize_swaps(composed, choices.get(GROUP), config_dirs)
    kept = [key for key in composed if (key in known if only_known else key != "hydra")]
    values = canonical(resolve(OmegaConf.masked_copy(composed, kept)))
    for key in _unknown_keys(OmegaConf.create(values), known):
        if key not in groups():
            raise ConfigError(f"unknown key {key}{did_you_mean(key, keys(known))}")
    chosen = {
        group: option
        for group, option in choices.items()
        if option is not None and not group.startswith("hydra/")
    }
    return {**values, "choices": chosen}


def resolve(config: DictConfig) -> Any:
    """Return a configuration as plain containers with its interpolations resolved.

    Raises ConfigError for missing values, unresolvable interpolations, NaN and infinity.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {first_line(error)}") from None
    for key, value in nonfinite(plain):
        raise ConfigError(f"{key}={value} must be a finite number")
    return plain


def _unknown_keys(config: DictConfig, known: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield keys that `+key=` added to `known`, except in components, which `check` validates."""
    for key in config:
        if key not in known:
            yield f"{prefix}{key}"
            continue
        child, known_child = config[key], known[key]
        if isinstance(child, DictConfig) and isinstance(known_child, DictConfig):
            is_component = "_target_" in child or "_target_" in known_child
            yield from [] if is_component else _unknown_keys(child, known_child, f"{prefix}{key}.")
