"""The trained run that a command is about, and the data it was trained on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from posenc.config.errors import ConfigError
from posenc.data.build import build_data
from posenc.data.dataset import Dataset
from posenc.record.rundir import RunDirectory


def run_directory(path: Any) -> RunDirectory:
    """The run in the folder `path`; ConfigError where there is none."""
    if path is None:
        raise ConfigError("run is missing; give run=outputs/<experiment>/<run>")
    if not isinstance(path, str):
        raise ConfigError(f"run={path} is no path; give run=outputs/<experiment>/<run>")
    target = RunDirectory(Path(path))
    if not target.config_file.is_file():
        raise ConfigError(f"run={path} is no run directory: it has no config.yaml")
    return target


def own_data(config: DictConfig, remedy: str, report: Callable[[str], None]) -> Dataset:
    """The data of a run's configuration; ConfigError, with a remedy, where it has changed since."""
    data = build_data(config, report)
    if data.fingerprint != config.frozen.fingerprint:
        raise ConfigError(
            f"the corpus is no longer what the run was trained on (fingerprint"
            f" {data.fingerprint}, then {config.frozen.fingerprint}); {remedy}"
        )
    return data
