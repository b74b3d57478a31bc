"""Configurations for tests, composed by Hydra once for each choice of config groups."""

from functools import cache

from omegaconf import DictConfig

from posenc.config.compose import Composer


@cache
def _composer() -> Composer:
    return Composer("train")


def composed(*overrides: str) -> DictConfig:
    """Return the configuration of `posenc train` with `overrides`, unresolved."""
    return _composer().compose(overrides)[0]
