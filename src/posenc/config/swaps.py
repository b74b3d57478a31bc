"""Evaluation swaps, which wrap a trained encoding or replace its spectrum."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.overrides import command_line_axes, override_key, to_override_value
from posenc.config.paths import NO_SWAP, SWAP_GROUP, allowed_options, option_files
from posenc.config.settings import check_values
from posenc.config.values import canonical

SWAP_PREFIX = "evaluation.swap."
MUTUALLY_EXCLUSIVE = f"{SWAP_GROUP} and evaluation.swaps are mutually exclusive; set one"


def merge_swap_choices(overrides: Sequence[str], config_dirs: Sequence[Path]) -> list[str]:
    """Return `overrides` with multiple values of `evaluation/swap` merged into one list of swaps.

    All swaps are then evaluated together. `none` is the unchanged encoding, and a value of
    `evaluation.swap.KEY` applies to each swap that has this parameter:
    `evaluation/swap=none,pi evaluation.swap.factor=2,4` gives three swaps. Raises ConfigError for a
    parameter that no swap has, or if `evaluation.swaps` is also set.
    """
    axes = command_line_axes(overrides, config_dirs)
    chosen = [s.override.partition("=")[2] for a in axes if a.key == SWAP_GROUP for s in a.settings]
    parameters = [axis for axis in axes if axis.key.startswith(SWAP_PREFIX)]
    num_values = [len(axis.settings) for axis in parameters]
    if not chosen or (NO_SWAP not in chosen and max([len(chosen), *num_values]) == 1):
        return list(overrides)
    if any(axis.key == "evaluation.swaps" for axis in axes):
        raise ConfigError(MUTUALLY_EXCLUSIVE)
    entries, used, available = [], set(), set()
    for option in chosen:
        node = {} if option == NO_SWAP else _swap_node(option, [], config_dirs)
        available |= {str(name) for name in node if not str(name).startswith("_")}
        accepted = [axis for axis in parameters if axis.key.removeprefix(SWAP_PREFIX) in node]
        used |= {axis.key for axis in accepted}
        for settings in product(*(axis.settings for axis in accepted)):
            words = (setting.override.removeprefix(SWAP_PREFIX) for setting in settings)
            entries.append(" ".join([option, *words]))
    if unused := [axis.key for axis in parameters if axis.key not in used]:
        hint = (
            f"available: {', '.join(sorted(available))}"
            if available
            else "these swaps have no parameters"
        )
        raise ConfigError(
            f"{unused[0]}: no selected swap ({', '.join(chosen)}) has this parameter; {hint}"
        )
    merged = {SWAP_GROUP, *used}
    kept = [override for override in overrides if override_key(override) not in merged]
    return [*kept, f"evaluation.swaps={to_override_value(entries, SWAP_GROUP)}"]


def normalize_swaps(config: DictConfig, choice: str | None, config_dirs: Sequence[Path]) -> None:
    """Convert `evaluation.swap` or `evaluation.swaps` to one mapping, `evaluation.swaps`.

    Its keys are names such as `yarn factor=4`: an option of the config group `evaluation/swap` and
    the parameters that differ from the option's defaults. Its values are configuration nodes, or
    null for `none`. `choice` is the option that the user chose in the group, if any. Raises
    ConfigError for invalid swaps.
    """
    evaluation = config.evaluation
    if evaluation.swap is not None:
        if choice is None or not OmegaConf.is_dict(evaluation.swap):
            available = ", ".join(allowed_options(SWAP_GROUP, config_dirs))
            raise ConfigError(
                f"evaluation.swap={evaluation.swap}: set {SWAP_GROUP}= to one of: {available}"
            )
        if evaluation.swaps is not None:
            raise ConfigError(MUTUALLY_EXCLUSIVE)
        nodes = {_swap_name(choice, evaluation.swap, config_dirs): evaluation.swap}
    elif OmegaConf.is_list(evaluation.swaps) and not evaluation.swaps:
        raise ConfigError(f"evaluation.swaps=[] evaluates nothing; use null or [{NO_SWAP}]")
    elif OmegaConf.is_list(evaluation.swaps):
        nodes = dict(_parse_swap(str(entry), config_dirs) for entry in evaluation.swaps)
    elif evaluation.swaps is not None:
        raise ConfigError(
            "evaluation.swaps must be a list such as [none,yarn], with parameters in quotes, such"
            " as ['yarn factor=4']"
        )
    else:
        return
    config.evaluation.update({"swap": None, "swaps": nodes})


def custom_swaps(evaluation: Mapping[str, Any]) -> list[str]:
    """Return the names of the swaps whose options are defined outside `conf/`."""
    return [
        name
        for name in evaluation.get("swaps") or {}
        if name != NO_SWAP and _is_custom(name.split()[0])
    ]


def _is_custom(option: str) -> bool:
    return option not in option_files(SWAP_GROUP)


def evaluation_swaps(config: DictConfig) -> dict[str | None, DictConfig | None]:
    """Map the name of each swap to its configuration; None means the unchanged encoding."""
    swaps = config.evaluation.swaps
    if swaps is None:
        return {None: None}
    return {None if name == NO_SWAP else name: node for name, node in swaps.items()}


def _parse_swap(entry: str, config_dirs: Sequence[Path]) -> tuple[str, DictConfig | None]:
    """Parse `yarn factor=4` into its canonical name and its configuration node."""
    option, *parameters = entry.split() or [""]
    if option == NO_SWAP:
        if parameters:
            raise ConfigError(f"evaluation.swaps: '{entry}': {NO_SWAP} has no parameters")
        return NO_SWAP, None
    keys = [parameter.partition("=")[0] for parameter in parameters]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ConfigError(f"evaluation.swaps: '{entry}' sets {', '.join(repeated)} more than once")
    node = _swap_node(option, parameters, config_dirs)
    return _swap_name(option, node, config_dirs), node


def _swap_name(option: str, node: DictConfig, config_dirs: Sequence[Path]) -> str:
    """Return the option and the parameters that differ from its defaults.

    For a custom option, whose defaults can change, the name includes all parameters, with a hash
    in place of each list or mapping. Raises ConfigError if a parameter was deleted, which the name
    would not show.
    """
    defaults: Any = canonical(OmegaConf.to_container(_swap_node(option, [], config_dirs)))
    values: Any = canonical(OmegaConf.to_container(node, resolve=True))
    check_values({"evaluation": {"swap": values}})
    if deleted := sorted(defaults.keys() - values.keys()):
        raise ConfigError(
            f"~{SWAP_PREFIX}{deleted[0]}: the parameters of a swap cannot be deleted; set"
            f" {SWAP_PREFIX}{deleted[0]} to a value instead"
        )
    named = {key for key, value in values.items() if value != defaults.get(key)}
    if _is_custom(option):
        named |= {key for key in values if not str(key).startswith("_")}
        values = {key: _short_value(value) for key, value in values.items()}
    words = [f"{key}={values[key]}".replace(" ", "") for key in named]
    return " ".join([option, *sorted(words)])


def _short_value(value: Any) -> Any:
    if not isinstance(value, dict | list):
        return value
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _swap_node(option: str, parameters: Sequence[str], config_dirs: Sequence[Path]) -> DictConfig:
    overrides = [f"{SWAP_GROUP}={option}", *(f"evaluation.swap.{p}" for p in parameters)]
    return compose("evaluate", overrides, config_dirs).evaluation.swap
