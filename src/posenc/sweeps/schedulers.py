"""What launchers that hand runs to a scheduler have in common."""

from importlib import import_module
from typing import Any

from posenc.config.errors import ConfigError


def check_counts(**knobs: int) -> None:
    """ConfigError for knobs of a launcher that are no whole number from 1 on."""
    for name, value in knobs.items():
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"hydra.launcher.{name}={value}: give 1 or more")


def needed(package: str) -> Any:
    """An optional package, imported; ConfigError where it is not installed."""
    try:
        return import_module(package)
    except ImportError:
        remedy = f"pip install 'posenc[{package}]'"
        raise ConfigError(f"this launcher needs {package}: {remedy}") from None
