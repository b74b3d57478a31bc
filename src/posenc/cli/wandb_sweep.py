"""`posenc wandb-sweep`: write an experiment's jobs as sweeps for W&B's agents."""

import json
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.config.compose import Composer, compose
from posenc.config.errors import ConfigError
from posenc.config.grids import SWEEP_KEYS, sweep_jobs, sweep_overrides
from posenc.config.overrides import command_line_axes, override_key
from posenc.jobs.job_config import compose_job
from posenc.jobs.validate import validate
from posenc.runs.files import write_atomic
from posenc.tracking.build_tracker import wandb_tracker
from posenc.tracking.wandb_sweeps import sweep_definitions

HEADER = "# Written by `{command}`; start with `wandb sweep`, then `wandb agent`.\n"


def run(arguments: Arguments) -> int:
    config_dirs, overrides = arguments.config_dirs, arguments.overrides
    shared = sweep_overrides(overrides)
    jobs = sweep_jobs("train", overrides, config_dirs)
    composer = Composer("train", config_dirs)
    verified: set[str] = set()
    for job in jobs:
        validate(compose_job(job, config_dirs, composer), verified)
    logger_overrides = [o for o in overrides if override_key(o).startswith("logger")]
    config = compose("train", [*shared, *logger_overrides], config_dirs)
    logger = wandb_tracker(config.logger)
    if logger is None:
        raise ConfigError("a W&B sweep needs logger=wandb, because its jobs are logged as W&B runs")
    destination = {"project": logger.project} | ({"entity": logger.entity} if logger.entity else {})
    flags = [word for folder in config_dirs for word in ("--config-dir", str(folder.resolve()))]
    definitions = sweep_definitions(
        [dict(_parameter(o) for o in job if override_key(o) not in SWEEP_KEYS) for job in jobs],
        [*flags, *shared, "logger.mode=online"],
        config.name,
        destination,
    )
    console = Console(highlight=False, soft_wrap=True)
    for i, definition in enumerate(definitions, 1):
        file = Path(config.outputs_dir) / config.name / f"wandb-sweep-{i}.yaml"
        header = HEADER.format(command=arguments.command_line())
        write_atomic(file, header + yaml.safe_dump(definition, sort_keys=False))
        console.print(f"wandb sweep {file}")
    return 0


def _parameter(override: str) -> tuple[str, Any]:
    """Return an override's key and value; numbers stay numbers, so that W&B can compare them."""
    key, _, raw_value = override.partition("=")
    value = json.loads(command_line_axes([override])[0].settings[0].value or "null")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return key, value if is_number else raw_value
