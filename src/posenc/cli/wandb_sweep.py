"""`posenc wandb-sweep`: write an experiment's jobs as W&B sweeps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import print_configs
from posenc.config.compose import Composer, compose
from posenc.config.console import Console
from posenc.config.errors import ConfigError, one_line
from posenc.config.grids import SWEEP_KEYS, sweep_jobs, sweep_overrides
from posenc.config.overrides import (
    command_line_axes,
    override_key,
    positive_integer,
    split_keys,
)
from posenc.config.search_space import INTERVAL_EXAMPLE, split_intervals
from posenc.jobs.job_config import compose_job
from posenc.runs.files import write_atomic

METHODS = ("bayes", "random")
SEARCH_KEYS = ("method", "min_iter")
HEADER = "# Written by `{command}`; register it with `wandb sweep`, then run `wandb agent`.\n"


def run(arguments: Arguments) -> int:
    config_dirs = arguments.config_dirs
    options, overrides = split_keys(arguments.overrides, SEARCH_KEYS)
    intervals, overrides = split_intervals(overrides)
    if options and not intervals:
        raise ConfigError(
            f"{', '.join(options)} apply only to a search; add an interval, such as"
            f" {INTERVAL_EXAMPLE}"
        )
    shared = sweep_overrides(overrides)
    jobs = sweep_jobs("train", overrides, config_dirs)
    composer = Composer("train", config_dirs)
    if CFG in arguments.flags:
        return print_configs(compose_job(job, composer) for job in jobs)
    verified: set[str] = set()
    probes = zip(*(i.probe_overrides for i in intervals), strict=True) if intervals else [()]
    configs = [compose_job([*job, *probe], composer) for probe in probes for job in jobs]
    from posenc.jobs.validate import validate  # a slow import, after the jobs have been composed
    from posenc.tracking.build_tracker import wandb_tracker
    from posenc.tracking.wandb_sweeps import search_definitions, sweep_definitions

    for config in configs:
        validate(config, verified)
    logger_overrides = [o for o in overrides if override_key(o).startswith("logger")]
    config = compose("train", [*shared, *logger_overrides], config_dirs)
    logger = wandb_tracker(config.logger)
    if logger is None:
        raise ConfigError("a W&B sweep needs logger=wandb, because its jobs are logged as W&B runs")
    destination = {"project": logger.project} | ({"entity": logger.entity} if logger.entity else {})
    flags = [word for folder in config_dirs for word in ("--config-dir", str(folder.resolve()))]
    settings = [
        dict(_parameter(o) for o in job if override_key(o) not in SWEEP_KEYS) for job in jobs
    ]
    trial_arguments = [*flags, *shared, "logger.mode=online"]
    if intervals:
        fields = {**destination, **_search_fields(options)}
        definitions = search_definitions(settings, intervals, trial_arguments, config.name, fields)
    else:
        definitions = sweep_definitions(settings, trial_arguments, config.name, destination)
    console = Console(highlight=False, soft_wrap=True)
    for i, definition in enumerate(definitions, 1):
        file = Path(config.outputs_dir) / config.name / f"wandb-sweep-{i}.yaml"
        header = HEADER.format(command=one_line(arguments.command_line()))
        write_atomic(file, header + yaml.safe_dump(definition, sort_keys=False))
        console.print(f"wandb sweep {file}")
    return 0


def _search_fields(options: Mapping[str, str]) -> dict[str, Any]:
    """Return a W&B sweep's fields `method` and `early_terminate`; raises ConfigError if invalid."""
    method, min_iter = options.get("method", METHODS[0]), options.get("min_iter")
    if method not in METHODS:
        raise ConfigError(f"method={method} must be one of {', '.join(METHODS)}")
    if min_iter is None:
        return {"method": method}
    stopping = {"type": "hyperband", "min_iter": positive_integer("min_iter", min_iter, 10**9)}
    return {"method": method, "early_terminate": stopping}


def _parameter(override: str) -> tuple[str, Any]:
    """Return an override's key and value; numbers are parsed, so that W&B can compare them."""
    key, _, raw_value = override.partition("=")
    value = command_line_axes([override])[0].settings[0].plain
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return key, value if is_number else raw_value
