"""Configurations and encodings for tests, composed by Hydra once for each choice of groups."""

from functools import cache
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from posenc.config.compose import Composer
from posenc.config.paths import conf_dir, options


@cache
def _composer() -> Composer:
    return Composer("train")


def composed(*overrides: str) -> DictConfig:
    """Return the configuration of `posenc train` with `overrides`, unresolved."""
    return _composer().compose(overrides)[0]


def encoding_params() -> list[Any]:
    """Return the names of all encodings as parameters of a test.

    The fast tests have the first YAML file of each class, the slow ones its other presets.
    """
    params: list[Any] = []
    classes: set[str | None] = {None}
    for name in sorted(options("encoding")):
        node = OmegaConf.load(conf_dir() / "encoding" / f"{name}.yaml")
        target = OmegaConf.select(node, "_target_")
        params.append(pytest.param(name, marks=pytest.mark.slow if target in classes else ()))
        classes.add(target)
    return params
