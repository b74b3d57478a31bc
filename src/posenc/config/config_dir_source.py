"""A Hydra ConfigSource for `--config-dir` that checks each file before Hydra loads it."""

from pathlib import Path
from typing import Any

import yaml
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf.errors import OmegaConfBaseException

from posenc.config.errors import ConfigError, one_line
from posenc.config.yaml_files import content_problem

SOURCES: Any = Plugins.instance().discover(ConfigSource)
FileSource: Any = next(source for source in SOURCES if source.scheme() == "file")
"""Hydra's own ConfigSource for files."""


class ConfigDirSource(FileSource):
    """Loads YAML files from `--config-dir`. Raises ConfigError for a file that cannot be used.

    `check_config_dir` has already checked the files in posenc's config groups, but their defaults
    lists can include others.
    """

    @staticmethod
    def scheme() -> str:
        return "config-dir"

    def load_config(self, config_path: str) -> ConfigResult:
        file = Path(self.path, self._normalize_file_name(config_path))
        if file.exists() and (problem := content_problem(file)):
            raise ConfigError(f"--config-dir: {file} {problem}")
        try:
            return super().load_config(config_path)
        except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
            reason = one_line(error) or type(error).__name__
            raise ConfigError(f"--config-dir: {file} cannot be used ({reason})") from None


Plugins.instance().register(ConfigDirSource)
