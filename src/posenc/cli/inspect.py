"""`posenc inspect`: analyze encodings without training, or the attention of a trained run."""

from importlib import import_module

from posenc.cli.arguments import Arguments
from posenc.config.errors import ConfigError
from posenc.config.overrides import root_key

RUN_KEYS = ("lengths", "windows", "sentence")
COMMON_KEYS = ("run", "logger", "modules")


def run(arguments: Arguments) -> int:
    """Inspect a run if the key `run` is given, else encodings.

    Raises ConfigError for keys that do not apply to this kind of inspection.
    """
    root_keys = {override: root_key(override) for override in arguments.overrides}
    inspects_run = "run" in root_keys.values()
    for override, key in root_keys.items():
        if inspects_run and key not in COMMON_KEYS + RUN_KEYS:
            keys = ", ".join(COMMON_KEYS + RUN_KEYS)
            raise ConfigError(f"{override} cannot be combined with run=PATH; allowed keys: {keys}")
        if not inspects_run and key in RUN_KEYS:
            raise ConfigError(f"{override} needs run=PATH; leave {key} out, or give a run")
    module = "inspect_run" if inspects_run else "inspect_encoding"  # Lightning is slow to import
    return import_module(f"posenc.cli.{module}").run(arguments)
