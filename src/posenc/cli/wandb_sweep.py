"""`posenc wandb-sweep`: an experiment's jobs as sweeps for W&B's agents."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.explain import key_of
from posenc.runs.files import write_atomic
from posenc.sweeps.grids import jobs_under
from posenc.sweeps.overrides import STEERING, command_axes, steering
from posenc.tracking.wandb_sweeps import sweep_definitions
from posenc.tracking.wandb_tracker import WandbTracker

HEADER = "# Written by `{command}`; start with `wandb sweep`, then `wandb agent`.\n"


def run(arguments: Arguments) -> int:
    folders, overrides = list(arguments.config_dirs), list(arguments.overrides)
    sweep_overrides, jobs = steering(overrides), jobs_under("train", overrides, folders)
    logger_overrides = [word for word in overrides if key_of(word).startswith("logger")]
    config = compose("train", [*sweep_overrides, *logger_overrides], folders)
    logger = build(config.logger, name="logger")
    if not isinstance(logger, WandbTracker):
        raise ConfigError("a W&B sweep needs logger=wandb: its trials are W&B runs")
    target = {"project": logger.project} | ({"entity": logger.entity} if logger.entity else {})
    config_dirs = [word for folder in folders for word in ("--config-dir", str(folder.resolve()))]
    definitions = sweep_definitions(
        [_parameters(job) for job in jobs],
        [*config_dirs, *sweep_overrides, "logger.mode=online"],
        config.name,
        target,
    )
    console = Console(highlight=False, soft_wrap=True)
    for i, definition in enumerate(definitions, 1):
        file = Path(config.outputs_dir) / config.name / f"wandb-sweep-{i}.yaml"
        text = yaml.safe_dump(definition, sort_keys=False)
        write_atomic(file, HEADER.format(command=arguments.typed()) + text)
        console.print(f"wandb sweep {file}")
    return 0


def _parameters(job: Sequence[str]) -> dict[str, Any]:
    """The job's own overrides as W&B sweep parameters."""
    return dict(_parameter(o) for o in job if o.partition("=")[0] not in STEERING)


def _parameter(override: str) -> tuple[str, Any]:
    """Key and value; a number as such, so that W&B can compare it, anything else as text."""
    key, _, text = override.partition("=")
    value = json.loads(command_axes([override])[0].settings[0].value or "null")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return key, value if is_number else text
