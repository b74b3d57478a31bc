"""`posenc inspect`: analyze encodings without training, or the attention of a trained model."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from posenc.cli.arguments import CFG, FILTER_KEYS, FOLDER_KEYS, Arguments
from posenc.cli.command_setup import experiment_folder, print_configs
from posenc.cli.run_selection import select_one_run
from posenc.config.component_types import trusted_modules
from posenc.config.compose import Composer
from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.config.grids import expand
from posenc.config.overrides import override_key, root_key
from posenc.config.paths import options
from posenc.config.resolve import compose_resolved
from posenc.config.settings import TYPES, check_settings
from posenc.runs.run_directory import RunDirectory, list_runs

if TYPE_CHECKING:
    from posenc.inspect.encoding.inspected_encoding import InspectedEncoding

SETTINGS = ("name", "train_length", "seed", "outputs_dir", "modules")
SINGLE_VALUE_KEYS = ("name", "outputs_dir", "logger")
RUN_KEYS = ("lengths", "windows", "sentence")
MAX_TRAIN_LENGTH = 2**13
COMMON_KEYS = ("run", "logger", "modules")


def run(arguments: Arguments) -> int:
    """Inspect a run if the keys select one, else encodings.

    `run` and `experiment` select a run. So does `name`, unless an encoding is set and either the
    folder has no runs or another key applies only to encodings: then `name` sets the folder of the
    results. Raises ConfigError for keys that do not apply to this kind of inspection.
    """
    keys = {root_key(override) for override in arguments.overrides}
    inspects_run = bool(keys & {"run", "experiment"}) or (
        "name" in keys and ("encoding" not in keys or _may_select_runs(arguments))
    )
    if inspects_run:
        arguments = select_one_run(arguments)
    root_keys = {override: root_key(override) for override in arguments.overrides}
    for override, key in root_keys.items():
        if inspects_run and key not in COMMON_KEYS + RUN_KEYS:
            allowed = ", ".join(COMMON_KEYS + RUN_KEYS)
            raise ConfigError(
                f"{override} cannot be combined with run=PATH; allowed keys: {allowed}"
            )
        if not inspects_run and key in RUN_KEYS:
            raise ConfigError(f"{override} applies only to runs; omit {key} or set run=PATH")
    if inspects_run:
        from posenc.cli.inspect_run import inspect_run  # Lightning is slow to import

        return inspect_run(arguments)
    return _inspect_encodings(arguments)


def _may_select_runs(arguments: Arguments) -> bool:
    """Return whether `name` is a folder with runs, and all other keys can apply to runs."""
    keys = {override_key(override) for override in arguments.overrides}
    if not keys <= {*FOLDER_KEYS, *FILTER_KEYS, *COMMON_KEYS, *RUN_KEYS}:
        return False
    folder_overrides = [o for o in arguments.overrides if override_key(o) in FOLDER_KEYS]
    try:
        folder = experiment_folder(replace(arguments, overrides=tuple(folder_overrides)))
    except ConfigError:  # the folder does not exist
        return False
    return bool(list_runs(folder))


def _inspect_encodings(arguments: Arguments) -> int:
    encodings = inspected_encodings(arguments)
    if CFG in arguments.flags:
        return print_configs(inspected.config for inspected in encodings)
    import torch

    from posenc.inspect.encoding.encoding_page import inspect_encodings
    from posenc.inspect.inspection import publish_inspection
    from posenc.tracking.build_tracker import build_tracker

    config = encodings[0].config
    tracker = build_tracker(config)
    torch.set_num_threads(1)  # faster than several threads for encodings of this size
    with Console(stderr=True).status("measuring") as status:
        results = inspect_encodings(encodings, status.update)
    folder = Path(config.outputs_dir) / config.name / "inspect"
    configs: Any = {
        inspected.label: OmegaConf.to_container(inspected.config) for inspected in encodings
    }
    command = arguments.command_line()
    publish_inspection(results, command, folder, tracker, RunDirectory(folder), configs)
    return 0


def inspected_encodings(arguments: Arguments) -> "list[InspectedEncoding]":
    """Return the encodings to inspect. Raises ConfigError before anything is measured."""
    folders = list(arguments.config_dirs)
    overrides = ["encoding=glob(*)" if o == "encoding=all" else o for o in arguments.overrides]
    if not any(override_key(override) == "encoding" for override in overrides):
        available = ", ".join(options("encoding", folders))
        raise ConfigError(f"set run=PATH, encoding=all, or encoding=NAME (available: {available})")
    jobs = expand(None, overrides, folders)
    composer = Composer("inspect", folders)
    configs = [_compose(job, composer) for job in jobs]
    for key in SINGLE_VALUE_KEYS:
        if len({str(config[key]) for config in configs}) > 1:
            raise ConfigError(f"{key}: all encodings are in one report; set a single value")
    from posenc.benchmark.variants import variant_labels  # imports torch; typos are reported first
    from posenc.inspect.encoding.inspected_encoding import InspectedEncoding

    if any("encoding" not in config.choices for config in configs):
        raise ConfigError("~encoding: an inspection needs an encoding; set encoding=NAME")
    names = [config.choices.encoding for config in configs]
    labels = variant_labels(names, jobs, omitted=["encoding"])
    return [InspectedEncoding(label, config) for label, config in zip(labels, configs, strict=True)]


def _compose(job: list[str], composer: Composer) -> DictConfig:
    """Return the configuration of one encoding, resolved and checked."""
    values = compose_resolved(composer, job)
    config = OmegaConf.create(values)
    check_settings(config, {key: TYPES[key] for key in SETTINGS})
    if config.train_length > MAX_TRAIN_LENGTH:
        raise ConfigError(
            f"train_length={config.train_length} must be at most {MAX_TRAIN_LENGTH:,}, because all"
            " vectors and scores are computed in float64 in windows several times as long, which"
            " takes about 20 seconds per encoding at this limit"
        )
    if config.train_length < 2:
        raise ConfigError("train_length=1 must be at least 2: an inspection compares two positions")
    config.modules = trusted_modules(values)
    return config
