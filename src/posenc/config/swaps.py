"""Evaluation swaps, which replace a part of a trained encoding, such as its RoPE spectrum."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.paths import options
from posenc.config.values import canonical

SWAP_GROUP, NO_SWAP = "evaluation/swap", "none"


def normalize_swaps(config: DictConfig, choice: str | None, config_dirs: Sequence[Path]) -> None:
    """Merge `evaluation.swap` and `evaluation.swaps` into one mapping, `evaluation.swaps`.

    Its keys are names such as `yarn factor=4`: an option of the config group `evaluation/swap` and
    the parameters that differ from the option's defaults. Its values are configuration nodes, or
    null for `none`. `choice` is the option that the user chose in the group, if any. Raises
    ConfigError for invalid swaps.
    """
    evaluation = config.evaluation
    if evaluation.swap is not None:
        if choice is None or not OmegaConf.is_dict(evaluation.swap):
            available = ", ".join(options(SWAP_GROUP, config_dirs))
            raise ConfigError(
                f"evaluation.swap={evaluation.swap}: set {SWAP_GROUP}= to one of: {available}"
            )
        if evaluation.swaps is not None:
            raise ConfigError(f"{SWAP_GROUP} and evaluation.swaps are mutually exclusive; set one")
        nodes = {_swap_name(choice, evaluation.swap, config_dirs): evaluation.swap}
    elif OmegaConf.is_list(evaluation.swaps):
        nodes = dict(_parse_swap(str(entry), config_dirs) for entry in evaluation.swaps)
    else:
        return
    config.evaluation.update({"swap": None, "swaps": nodes})


def evaluation_swaps(config: DictConfig) -> dict[str | None, DictConfig | None]:
    """Map the name of each swap to its configuration; None means the unchanged encoding."""
    swaps = config.evaluation.swaps
    if swaps is None:
        return {None: None}
    return {None if name == NO_SWAP else name: node for name, node in swaps.items()}


def _parse_swap(entry: str, config_dirs: Sequence[Path]) -> tuple[str, DictConfig | None]:
    """Parse `yarn factor=4` into its canonical name and its configuration node."""
    option, *parameters = entry.split() or [""]
    if option == NO_SWAP and not parameters:
        return NO_SWAP, None
    node = _swap_node(option, parameters, config_dirs)
    return _swap_name(option, node, config_dirs), node


def _swap_name(option: str, node: DictConfig, config_dirs: Sequence[Path]) -> str:
    defaults: Any = canonical(OmegaConf.to_container(_swap_node(option, [], config_dirs)))
    values: Any = canonical(OmegaConf.to_container(node, resolve=True))
    changed = [f"{key}={value}" for key, value in values.items() if value != defaults.get(key)]
    return " ".join([option, *sorted(changed)])


def _swap_node(option: str, parameters: Sequence[str], config_dirs: Sequence[Path]) -> DictConfig:
    overrides = [f"{SWAP_GROUP}={option}", *(f"evaluation.swap.{p}" for p in parameters)]
    return compose("evaluate", overrides, config_dirs).evaluation.swap
