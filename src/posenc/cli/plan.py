"""`posenc plan`: estimate parameters, memory, FLOPs and time of an experiment."""

import json

from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import print_configs
from posenc.config.components import build
from posenc.config.compose import Composer, compose
from posenc.config.console import Console
from posenc.config.errors import ConfigError
from posenc.config.grids import compose_sweep, expand_config
from posenc.config.overrides import root_key
from posenc.jobs.job_config import compose_sweep_jobs


def run(arguments: Arguments) -> int:
    console, folders = Console(stderr=True), arguments.config_dirs
    machine_overrides = [o for o in arguments.overrides if root_key(o) == "machine"]
    overrides = [o for o in arguments.overrides if o not in machine_overrides]
    settings = compose_sweep("train", overrides, folders)
    jobs = expand_config(settings, overrides, folders)
    configs = compose_sweep_jobs(jobs, Composer("train", folders))
    machine_config = compose("plan", machine_overrides, folders).machine
    if CFG in arguments.flags:
        return print_configs(configs)
    import torch  # a slow import, deferred until the configurations have been checked

    from posenc.benchmark.estimate import estimate_runs
    from posenc.benchmark.estimate_tables import print_estimates, to_dict
    from posenc.benchmark.throughput import DataSheetGpu, Machine, ThisMachine
    from posenc.runs.hardware import gpu_groups, gpus
    from posenc.sweeps.pool import PoolLauncher, concurrent_runs

    machine: Machine = build(machine_config, name="machine")
    on_cpu = any(config["trainer"]["accelerator"] == "cpu" for config in configs)
    if isinstance(machine, DataSheetGpu) and on_cpu:
        raise ConfigError("the chosen machine is a GPU, but trainer=cpu trains on a CPU; omit one")
    launcher = build(settings.hydra.launcher, name="hydra.launcher")
    if isinstance(machine, ThisMachine) and isinstance(launcher, PoolLauncher):
        devices = max(config["devices"] for config in configs)
        groups = gpu_groups(gpus(), devices)
        machine.concurrent_runs = concurrent_runs(launcher.jobs, len(configs), devices, groups)
    torch.set_num_threads(1)  # faster than several threads for tensors of this size
    with console.status("estimating"):
        estimates = estimate_runs(configs, machine)
    if "--json" in arguments.flags:
        print(json.dumps(to_dict(estimates, machine), indent=2))
    else:
        print_estimates(estimates, machine, Console())
    return 0
