"""`posenc plan`: what an experiment will take, without running it."""

import json

from rich.console import Console

from posenc.benchmark.estimate import Estimate, Machine, estimate
from posenc.benchmark.estimate_tables import as_json, show
from posenc.cli.arguments import Arguments
from posenc.config.components import build
from posenc.config.compose import compose
from posenc.config.explain import key_of
from posenc.sweeps.grids import jobs_under
from posenc.sweeps.plan import resolved


def run(arguments: Arguments) -> int:
    console, folders = Console(stderr=True), list(arguments.config_dirs)
    of_machine = [o for o in arguments.overrides if key_of(o).split(".")[0] == "machine"]
    overrides = [o for o in arguments.overrides if o not in of_machine]
    settings = compose("plan", of_machine, folders)
    machine: Machine = build(settings.machine, name="machine")
    jobs = jobs_under("train", overrides, folders)
    estimates: list[Estimate] = []
    with console.status("planning"):
        for job in jobs:
            estimates.append(estimate(resolved(job, folders), machine))
    if "--json" in arguments.flags:
        print(json.dumps(as_json(estimates, machine), indent=2))
    else:
        show(estimates, machine, Console())
    return 0
