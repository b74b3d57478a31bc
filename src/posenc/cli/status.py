"""`posenc status`: how far every run of an experiment is."""

import json

from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.folder import folder_of
from posenc.sweep.view import expected_runs, status_json, status_table


def run(arguments: Arguments) -> int:
    runs = expected_runs(folder_of(arguments))
    if "--json" in arguments.flags:
        print(json.dumps(status_json(runs), indent=2))
    else:
        status_table(runs, Console())
    return 0
