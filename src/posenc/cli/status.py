"""`posenc status`: how far every run of an experiment is."""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from posenc.cli.arguments import Arguments
from posenc.cli.folder import folder_of
from posenc.config.errors import ConfigError
from posenc.sweeps.view import expected_runs, is_open, status_json, status_shown

WATCH_SECONDS = 1.0


def run(arguments: Arguments) -> int:
    folder = folder_of(arguments)
    if {"--json", "--watch"} <= arguments.flags:
        raise ConfigError("--json and --watch are given together; give one of them")
    if "--json" in arguments.flags:
        print(json.dumps(status_json(expected_runs(folder)), indent=2))
    elif "--watch" in arguments.flags:
        _watch(folder)
    else:
        Console().print(status_shown(expected_runs(folder)), soft_wrap=True)
    return 0


def _watch(folder: Path) -> None:
    """Until every run has finished or failed, or Ctrl-C."""
    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            runs = expected_runs(folder)
            live.update(status_shown(runs), refresh=True)
            if not any(is_open(run) for run in runs):
                return
            time.sleep(WATCH_SECONDS)
