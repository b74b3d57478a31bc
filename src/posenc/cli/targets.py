"""Selection of an experiment's folder, a run directory or a run's training data."""

import glob
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.cli.arguments import Arguments
from posenc.config.component_types import trusted_modules
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.overrides import command_line_axes, override_key, to_override_value
from posenc.config.settings import TYPES, check_settings
from posenc.runs.run_directory import RunDirectory, list_runs

FOLDER_KEYS = ("experiment", "size", "name", "outputs_dir")
FILTER_KEYS = ("encoding", "train_length", "seed")
DEFAULT_OUTPUTS = "outputs"
MAX_LISTED = 5


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


def run_directory(path: Any) -> RunDirectory:
    """Return the run at `path`. Raises ConfigError if that is not a run directory."""
    if path is None:
        raise ConfigError("run is missing; set run=outputs/<experiment>/<run>")
    if not isinstance(path, str):
        raise ConfigError(f"run={path} is not a path; set run=outputs/<experiment>/<run>")
    run = RunDirectory(Path(path))
    if not run.config_file.is_file():
        raise ConfigError(f"run={path} is not a run directory (no config.yaml)")
    return run


def find_run(path: Any) -> RunDirectory:
    """Return the run at `path`, or the only run whose path or name starts with `path`.

    Names are searched in the folders of `outputs/`. Raises ConfigError if there is no such run, or
    more than one.
    """
    if not isinstance(path, str) or (Path(path) / "config.yaml").is_file():
        return run_directory(path)
    prefix = glob.escape(str(Path(path)))
    patterns = (prefix, f"{DEFAULT_OUTPUTS}/{prefix}", f"{DEFAULT_OUTPUTS}/*/{prefix}")
    files = {name for pattern in patterns for name in glob.glob(f"{pattern}*/config.yaml")}
    matches = sorted(str(Path(file).parent) for file in files)
    if len(matches) > 1:
        listed = ", ".join(matches[:MAX_LISTED]) + ", ..." * (len(matches) > MAX_LISTED)
        raise ConfigError(f"run={path} is the start of {len(matches)} runs ({listed}); set one")
    return run_directory(matches[0] if matches else path)


def split_filter(overrides: Sequence[str]) -> tuple[dict[str, set[str | None]], list[str]]:
    """Return the values by which runs are filtered, for each filter key, and other overrides."""
    filters = [override for override in overrides if override_key(override) in FILTER_KEYS]
    axes = command_line_axes(filters)
    values = {axis.key: {setting.value for setting in axis.settings} for axis in axes}
    return values, [override for override in overrides if override not in filters]


def matches_filter(run: RunDirectory, values: Mapping[str, set[str | None]]) -> bool:
    """Return whether a run has the values; a run without a configuration has none."""
    if not run.config_file.is_file():
        return not values
    config = run.config()
    actual = {**config, "encoding": config.choices.encoding}
    return all(json.dumps(actual[key]) in options for key, options in values.items())


def select_runs(arguments: Arguments) -> list[str]:
    """Return the overrides with `run=PATH,...` in place of an experiment and filters.

    Raises ConfigError if the experiment has no finished run that the filters select.
    """
    in_folder = [o for o in arguments.overrides if override_key(o) in FOLDER_KEYS]
    if not in_folder:
        return list(arguments.overrides)
    values, others = split_filter(arguments.overrides)
    folder = experiment_folder(replace(arguments, overrides=tuple(in_folder)))
    finished = [run for run in list_runs(folder) if run.status().state == "finished"]
    paths = [str(run.path) for run in finished if matches_filter(run, values)]
    if not paths:
        raise ConfigError(
            f"none of the {len(finished)} finished runs in {folder} has these values; `posenc"
            f" status name={folder.name}` lists all runs"
        )
    kept = [override for override in others if override not in in_folder]
    return [*kept, "run=" + ",".join(to_override_value(path, "run") for path in paths)]


def run_config(run: RunDirectory, modules: Sequence[str], arguments: Arguments) -> DictConfig:
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
