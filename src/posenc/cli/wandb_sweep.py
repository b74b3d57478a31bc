"""`posenc wandb-sweep`: an experiment's grids as sweeps for W&B's agents."""

from pathlib import Path

import yaml
from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.errors import ConfigError
from posenc.config.explain import key_of
from posenc.dashboard.sweeps import definitions
from posenc.runs.files import write_atomic
from posenc.sweeps.grids import jobs_under
from posenc.sweeps.overrides import steering
from posenc.tracking.wandb_run import Wandb

HEADER = "# Written by `{command}`; start it with `wandb sweep`, then `wandb agent`.\n"


def run(arguments: Arguments) -> int:
    folders, overrides = list(arguments.config_dirs), list(arguments.overrides)
    steers, jobs = steering(overrides), jobs_under("train", overrides, folders)
    of_logger = [word for word in overrides if key_of(word).startswith("logger")]
    config = compose("train", [*steers, *of_logger], folders)
    logger = build(config.logger, name="logger")
    if not isinstance(logger, Wandb):
        raise ConfigError("logger=none: the trials of a W&B sweep are W&B runs; leave it out")
    target = {"project": logger.project} | ({"entity": logger.entity} if logger.entity else {})
    where = [word for folder in folders for word in ("--config-dir", str(folder.resolve()))]
    found = definitions(jobs, [*where, *steers, "logger.mode=online"], config.name, target)
    console = Console(highlight=False, soft_wrap=True)
    for i, definition in enumerate(found, 1):
        file = Path(config.outputs_dir) / config.name / f"wandb-sweep-{i}.yaml"
        text = yaml.safe_dump(definition, sort_keys=False)
        write_atomic(file, HEADER.format(command=arguments.typed()) + text)
        console.print(f"wandb sweep {file}")
    return 0
