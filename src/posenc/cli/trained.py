"""The data that a trained run was trained on."""

from collections.abc import Callable

from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.data.build_data import build_data
from posenc.data.dataset import Dataset


def own_data(config: DictConfig, remedy: str, report: Callable[[str], None]) -> Dataset:
    """The data of a run's configuration; ConfigError, with a remedy, where it has changed since."""
    data = build_data(config, report)
    if data.fingerprint != config.frozen.fingerprint:
        raise ConfigError(
            f"the corpus is no longer what the run was trained on (fingerprint"
            f" {data.fingerprint}, then {config.frozen.fingerprint}); {remedy}"
        )
    return data
