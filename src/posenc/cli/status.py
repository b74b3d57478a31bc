"""`posenc status`: show the progress of every run of an experiment."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from posenc.cli.arguments import Arguments
from posenc.cli.targets import experiment_folder
from posenc.config.errors import ConfigError
from posenc.sweeps.status_table import expected_runs, is_unfinished, status_json, status_table

WATCH_SECONDS = 1.0


def run(arguments: Arguments) -> int:
    folder = experiment_folder(arguments)
    if {"--json", "--watch"} <= arguments.flags:
        raise ConfigError("--json and --watch are mutually exclusive; use only one")
    if "--json" in arguments.flags:
        print(json.dumps(status_json(expected_runs(folder)), indent=2))
    elif "--watch" in arguments.flags:
        _watch(folder)
    else:
        Console().print(status_table(expected_runs(folder)), soft_wrap=True)
    return 0


def _watch(folder: Path) -> None:
    """Refresh the table until every run has finished or failed."""
    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            runs = expected_runs(folder)
            live.update(status_table(runs), refresh=True)
            if not any(is_unfinished(run) for run in runs):
                return
            time.sleep(WATCH_SECONDS)
