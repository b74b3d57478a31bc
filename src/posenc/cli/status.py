"""`posenc status`: show the progress of an experiment's runs."""

import json
import time
from collections.abc import Callable

from rich.live import Live

from posenc.cli.arguments import Arguments
from posenc.cli.run_selection import select_in_folder
from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.config.paths import describe_other_results
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.status_table import all_runs, status_json, status_table

WATCH_SECONDS = 1.0


def run(arguments: Arguments) -> int:
    folder, select = select_in_folder(arguments)
    if {"--json", "--watch"} <= arguments.flags:
        raise ConfigError("--json and --watch are mutually exclusive; use only one")

    def read_runs() -> list[RunDirectory]:
        runs = all_runs(folder)
        return runs if select is None else list(select(runs))

    if "--json" in arguments.flags:
        print(json.dumps(status_json(read_runs()), indent=2))
    elif "--watch" in arguments.flags:
        _watch(read_runs)
    elif runs := read_runs():
        Console().print(status_table(runs), soft_wrap=True)
    else:
        results = describe_other_results(folder)
        text = f"{folder} has no runs{f', but {results}' if results else ''}"
        Console().print(text, soft_wrap=True, highlight=False)
    return 0


def _watch(read_runs: Callable[[], list[RunDirectory]]) -> None:
    """Refresh the table until every run has finished or failed."""
    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            runs = read_runs()
            live.update(status_table(runs), refresh=True)
            if all(run.status().has_ended for run in runs):
                return
            time.sleep(WATCH_SECONDS)
