"""posenc: how a positional encoding affects a Transformer, at its training length and beyond.

`train`, `load` and `results` are the API for Python scripts and notebooks. They raise exceptions
with the same messages that the commands print. All names are imported lazily.
"""

import importlib
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posenc.api.loaded_run import LoadedRun, load
    from posenc.api.results_frame import results
    from posenc.api.train_runs import train
    from posenc.config.errors import ConfigError, PosencError, RunError

__version__ = "0.2.0"
IMPORT_TIME = time.time()
"""When this process imported posenc, in seconds since the epoch."""
__all__ = ["ConfigError", "LoadedRun", "PosencError", "RunError", "load", "results", "train"]

_MODULES = {
    "ConfigError": "posenc.config.errors",
    "LoadedRun": "posenc.api.loaded_run",
    "PosencError": "posenc.config.errors",
    "RunError": "posenc.config.errors",
    "load": "posenc.api.loaded_run",
    "results": "posenc.api.results_frame",
    "train": "posenc.api.train_runs",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'posenc' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
