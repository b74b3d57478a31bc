"""`posenc plan`: estimate parameters, memory, FLOPs and time of an experiment."""

import json

import torch
from rich.console import Console

from posenc.benchmark.estimate import estimate_runs
from posenc.benchmark.estimate_tables import as_json, print_estimates
from posenc.benchmark.throughput import Machine
from posenc.cli.arguments import CFG, Arguments
from posenc.cli.targets import print_configs
from posenc.config.components import build
from posenc.config.compose import Composer, compose
from posenc.config.grids import sweep_jobs
from posenc.config.overrides import root_key
from posenc.jobs.job_config import compose_sweep_jobs


def run(arguments: Arguments) -> int:
    console, folders = Console(stderr=True), arguments.config_dirs
    machine_overrides = [o for o in arguments.overrides if root_key(o) == "machine"]
    overrides = [o for o in arguments.overrides if o not in machine_overrides]
    machine: Machine = build(compose("plan", machine_overrides, folders).machine, name="machine")
    jobs = sweep_jobs("train", overrides, folders)
    configs = compose_sweep_jobs(jobs, Composer("train", folders))
    if CFG in arguments.flags:
        return print_configs(configs)
    torch.set_num_threads(1)  # faster than several threads for tensors of this size
    with console.status("estimating"):
        estimates = estimate_runs(configs, machine)
    if "--json" in arguments.flags:
        print(json.dumps(as_json(estimates, machine), indent=2))
    else:
        print_estimates(estimates, machine, Console())
    return 0
