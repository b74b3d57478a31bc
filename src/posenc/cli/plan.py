"""`posenc plan`: estimate parameters, memory, FLOPs and time of an experiment."""

import json

from rich.console import Console

from posenc.benchmark.estimate import estimate
from posenc.benchmark.estimate_tables import as_json, print_estimates
from posenc.benchmark.throughput import Machine
from posenc.cli.arguments import Arguments
from posenc.config.components import build
from posenc.config.compose import Composer, compose
from posenc.config.grids import sweep_jobs
from posenc.config.overrides import root_key
from posenc.jobs.job_config import compose_job


def run(arguments: Arguments) -> int:
    console, folders = Console(stderr=True), arguments.config_dirs
    machine_overrides = [o for o in arguments.overrides if root_key(o) == "machine"]
    overrides = [o for o in arguments.overrides if o not in machine_overrides]
    machine: Machine = build(compose("plan", machine_overrides, folders).machine, name="machine")
    with console.status("estimating"):
        jobs, composer = sweep_jobs("train", overrides, folders), Composer("train", folders)
        verified: set[str] = set()
        configs = [compose_job(job, folders, composer) for job in jobs]
        estimates = [estimate(config, machine, verified) for config in configs]
    if "--json" in arguments.flags:
        print(json.dumps(as_json(estimates, machine), indent=2))
    else:
        print_estimates(estimates, machine, Console())
    return 0
