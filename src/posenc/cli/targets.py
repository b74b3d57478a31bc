"""The folder of an experiment, and the configuration and the training data of a run."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.cli.arguments import Arguments
from posenc.config.component_types import trusted_modules
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.overrides import override_key
from posenc.config.settings import TYPES, check_settings
from posenc.runs.run_directory import RunDirectory

FOLDER_KEYS = ("experiment", "size", "name", "outputs_dir")


def experiment_folder(arguments: Arguments) -> Path:
    """Return `outputs_dir/name`. Raises ConfigError for other keys or a missing folder.

    An argument without `=` is a folder's name: `quickstart` means `name=quickstart`.
    """
    overrides = [word if "=" in word else f"name={word}" for word in arguments.overrides]
    for override in overrides:
        if override_key(override) not in FOLDER_KEYS:
            raise ConfigError(f"{override}: unknown key (available: {', '.join(FOLDER_KEYS)})")
    config = compose("train", overrides, arguments.config_dirs)
    check_settings(config, {key: TYPES[key] for key in ("name", "outputs_dir")})
    folder = Path(config.outputs_dir) / config.name
    if not folder.is_dir():
        existing = sorted(p.parent.name for p in Path(config.outputs_dir).glob("*/plan.json"))
        names = ", ".join(existing) or "none"
        raise ConfigError(f"{folder} does not exist (experiments in {config.outputs_dir}: {names})")
    return folder


def trusted_run_config(
    run: RunDirectory, modules: Sequence[str], arguments: Arguments
) -> DictConfig:
    """Return the configuration of a run, with `modules` as the modules outside posenc it may use.

    They are not taken from `config.yaml`, because a run directory may come from someone else, and
    importing a module runs its code. Raises ConfigError with the complete command if the run's
    encoding needs another module of the current folder.
    """
    config = run.config()
    config.modules = list(modules)
    plain: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, ["encoding", "modules"]))
    for module in set(trusted_modules(plain)) - {name.split(".")[0] for name in modules}:
        if not any(Path(path).is_file() for path in (f"{module}.py", f"{module}/__init__.py")):
            continue  # the check of the targets names what is missing
        words = [word for word in arguments.argv if override_key(word) != "modules"]
        value = f"modules=[{','.join([*modules, module])}]"
        command = shlex.join(["posenc", arguments.command, *words, value])
        raise ConfigError(
            f"{run.name} has an encoding of the module {module}, which is outside posenc, and a run"
            f" directory imports no code by itself; if you trust {module} here: {command}"
        )
    return config


def training_data(config: DictConfig, remedy: str, on_progress: Callable[[str], None]) -> Any:
    """Return the Dataset that a run was trained on.

    Raises ConfigError with the `remedy` if the corpus or tokenizer has changed since then.
    """
    from posenc.data.build_data import build_data

    data = build_data(config, on_progress)
    if data.fingerprint != config.frozen.fingerprint:
        raise ConfigError(
            f"the corpus has changed since the run was trained (its fingerprint was"
            f" {config.frozen.fingerprint} and is now {data.fingerprint}); {remedy}"
        )
    return data
