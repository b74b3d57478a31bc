"""Hydra's reader of the files of `--config-dir`, which checks each file that it reads."""

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
"""Hydra's own reader of files."""


class ConfigDirSource(FileSource):
    """Reads YAML files of `--config-dir`.

    `check_config_dir` has checked those in the groups of posenc, but they can include others.
    Raises ConfigError for a file that cannot be used.
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
