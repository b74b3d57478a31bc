"""Where everything of a run lies."""

from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posenc.config.errors import RunError
from posenc.runs.evaluation_rows import read_rows
from posenc.runs.files import read_lines
from posenc.runs.lock import is_locked
from posenc.runs.status import Status

FROZEN = {"hash": str, "fingerprint": str, "parameters": int, "posenc": str}


class RunDirectory:
    """`outputs/<experiment>/<run>/`: one run's configuration, logs, checkpoints and results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.config_file = path / "config.yaml"
        self.status_file = path / "status.json"
        self.metrics_file = path / "metrics.jsonl"
        self.timing_file = path / "timing.jsonl"
        self.evaluation_file = path / "evaluation.json"
        self.positions_file = path / "loss_by_position.npz"
        self.tokenizer_file = path / "tokenizer.json"
        self.checkpoints = path / "checkpoints"
        self.log_file = path / "run.log"
        self.lock_file = path / ".lock"

    def config(self) -> DictConfig:
        """The frozen configuration; RunError where the file is damaged or none of posenc's."""
        try:
            config = OmegaConf.load(self.config_file)
        except (yaml.YAMLError, OmegaConfBaseException, ValueError, OSError) as error:
            first = str(error).split("\n", 1)[0]
            raise RunError(f"{self.config_file} cannot be read ({first})") from None
        if not isinstance(config, DictConfig) or not _planned(config):
            raise RunError(f"{self.config_file} is no configuration of a planned run")
        if key := _interpolation(config):
            raise RunError(
                f"{self.config_file}: {key} is an interpolation, which a frozen configuration has"
                f" none of: it could read this machine's environment"
            )
        return config

    def status(self) -> Status:
        """The status; a run that says it is running while nobody holds its lock was cut off."""
        status = Status.read(self.status_file)
        if status.state == "running" and not is_locked(self.lock_file):
            return status.but(state="interrupted", error=status.error or "its process was killed")
        return status

    def rows(self) -> list[dict[str, Any]]:
        return read_rows(self.evaluation_file)

    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.metrics_file)

    def timing(self) -> list[dict[str, Any]]:
        return read_lines(self.timing_file)


def _planned(config: DictConfig) -> bool:
    """Whether all is in it that planning a run leaves there."""
    if not OmegaConf.is_dict(config.get("choices")):
        return False
    frozen = config.get("frozen")
    if not OmegaConf.is_dict(frozen) or not OmegaConf.is_list(frozen.get("lengths")):
        return False
    return all(isinstance(frozen.get(key), kind) for key, kind in FROZEN.items())


def _interpolation(config: Any, path: str = "") -> str | None:
    """The path of a value that is yet to be resolved, in mappings and lists of any depth."""
    keys = list(config) if OmegaConf.is_dict(config) else range(len(config))
    for key in keys:
        here = f"{path}.{key}".lstrip(".")
        if OmegaConf.is_interpolation(config, key):
            return here
        if OmegaConf.is_config(config[key]) and (found := _interpolation(config[key], here)):
            return found
    return None


def runs_of(folder: Path) -> list[RunDirectory]:
    """Every run below an experiment's folder, by name."""
    return [RunDirectory(file.parent) for file in sorted(folder.glob("*/config.yaml"))]
