"""Optional dependencies, and the extras of posenc that install them."""

from importlib import import_module
from typing import Any

from posenc.config.errors import ConfigError

EXTRAS = {
    "wandb_workspaces": "dashboard",
    "submitit": "submitit",
    "ray": "ray",
    "psutil": "psutil",
    "tensorboard": "tensorboard",
    "optuna": "optuna",
    "pytorch_optimizer": "lion",
}
"""Module -> the extra of posenc that installs it."""


def import_extra(module: str, feature: str) -> Any:
    """Import a module that `feature` needs. Raises ConfigError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(
            f"{feature} needs {module}; install it with pip install 'posenc[{EXTRAS[module]}]'"
        ) from None
