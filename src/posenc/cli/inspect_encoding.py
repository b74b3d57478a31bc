"""`posenc inspect encoding=...`: properties of encodings, measured without training."""

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.benchmark.variants import variant_labels
from posenc.cli.arguments import Arguments
from posenc.config.components import build, user_modules
from posenc.config.errors import ConfigError
from posenc.config.grids import expand
from posenc.config.overrides import override_key
from posenc.config.paths import options, options_in
from posenc.config.resolve import compose_resolved
from posenc.config.settings import TYPES, check_settings
from posenc.inspect.encoding import inspect
from posenc.inspect.encoding.subject import Subject
from posenc.inspect.write import mirror, show, write
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.tracker import Tracker

SETTINGS = ("name", "train_length", "seed", "outputs_dir", "modules")
SINGLE_VALUE_KEYS = ("name", "outputs_dir", "logger")
ALL = "encoding=all"


def run(arguments: Arguments) -> int:
    subjects = subjects_of(arguments)
    config = subjects[0].config
    tracker: Tracker = build(config.logger, name="logger", modules=list(config.modules))
    torch.set_num_threads(1)  # more threads slow down encodings as small as these
    with Console(stderr=True).status("measuring") as status:
        findings = inspect(subjects, lambda label: status.update(f"measuring {label}"))
    folder = Path(config.outputs_dir) / config.name / "inspect"
    index = write(folder, findings, arguments.command_line())
    plain: Any = {subject.label: OmegaConf.to_container(subject.config) for subject in subjects}
    mirror(tracker, RunDirectory(folder), folder, findings, plain)
    show(Console(), findings, index)
    return 0


def subjects_of(arguments: Arguments) -> list[Subject]:
    """Return the encodings to inspect; raises ConfigError if any of them is invalid."""
    folders = list(arguments.config_dirs)
    overrides = ["encoding=glob(*)" if o == ALL else o for o in arguments.overrides]
    if not any(override_key(override) == "encoding" for override in overrides):
        available = ", ".join(options("encoding", folders))
        raise ConfigError(f"give encoding=all, some of {available}, or run=PATH")
    jobs = expand(None, overrides, options_in(folders))
    configs = [_compose(job, folders) for job in jobs]
    for key in SINGLE_VALUE_KEYS:
        if len({str(config[key]) for config in configs}) > 1:
            raise ConfigError(f"{key}: one page shows all encodings; give a single value")
    names = variant_labels([config.choices.encoding for config in configs], jobs)
    return [Subject(name, config) for name, config in zip(names, configs, strict=True)]


def _compose(job: list[str], folders: list[Path]) -> DictConfig:
    """Return the configuration of one encoding, resolved and checked."""
    values = compose_resolved("inspect", job, folders)
    config = OmegaConf.create(values)
    check_settings(config, {key: TYPES[key] for key in SETTINGS})
    config.modules = sorted({*config.modules, *user_modules(values)})
    return config
