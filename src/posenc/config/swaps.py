"""Which exchanges of the encoding's length-dependent part are measured, and how each is written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.numbers import canonical
from posenc.config.paths import options

GROUP, NONE = "evaluation/swap", "none"


def settle_swaps(config: DictConfig, choice: str | None, config_dirs: Sequence[Path]) -> None:
    """Bring `evaluation.swap`, the `choice` of its group, and the list `evaluation.swaps` to one
    form: `evaluation.swaps` as a mapping of texts to what they name, `none` to null.

    A text is an option and those of its knobs that differ from the option's own, such as
    `yarn factor=4`; ConfigError for one that cannot be read.
    """
    asked = config.evaluation
    if asked.swap is not None:
        there = ", ".join(options(GROUP, list(config_dirs)))
        if choice is None or not OmegaConf.is_dict(asked.swap):
            raise ConfigError(f"evaluation.swap={asked.swap}: give {GROUP}= one of {there}")
        if asked.swaps is not None:
            raise ConfigError(f"{GROUP} and evaluation.swaps are given together; give one of them")
        nodes = {_text(choice, asked.swap, config_dirs): asked.swap}
    elif OmegaConf.is_list(asked.swaps):
        nodes = dict(_read(str(entry), config_dirs) for entry in asked.swaps)
    else:
        return
    config.evaluation.update({"swap": None, "swaps": nodes})


def swaps_of(config: DictConfig) -> dict[str | None, DictConfig | None]:
    """The swaps to measure under by their text; None is the run's own encoding."""
    swaps = config.evaluation.swaps
    if swaps is None:
        return {None: None}
    return {None if text == NONE else text: node for text, node in swaps.items()}


def _read(entry: str, config_dirs: Sequence[Path]) -> tuple[str, DictConfig | None]:
    """`yarn factor=4` as its canonical text and its node."""
    name, *knobs = entry.split() or [""]
    if name == NONE and not knobs:
        return NONE, None
    node = _node(name, knobs, config_dirs)
    return _text(name, node, config_dirs), node


def _text(name: str, node: DictConfig, config_dirs: Sequence[Path]) -> str:
    own: Any = canonical(OmegaConf.to_container(_node(name, [], config_dirs)))
    given: Any = canonical(OmegaConf.to_container(node, resolve=True))
    knobs = [f"{key}={value}" for key, value in given.items() if value != own.get(key)]
    return " ".join([name, *sorted(knobs)])


def _node(name: str, knobs: Sequence[str], config_dirs: Sequence[Path]) -> DictConfig:
    overrides = [f"{GROUP}={name}", *(f"evaluation.swap.{knob}" for knob in knobs)]
    return compose("evaluate", overrides, config_dirs).evaluation.swap
