"""`posenc bench`: measure the time and memory that encodings take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.benchmark.bench_settings import check_bench_settings
from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import print_configs
from posenc.config.component_types import trusted_modules
from posenc.config.compose import Composer
from posenc.config.console import Console
from posenc.config.errors import ConfigError, did_you_mean, plural
from posenc.config.grids import sweep_jobs
from posenc.config.overrides import root_key
from posenc.config.resolve import compose_resolved
from posenc.runs.hardware import cores
from posenc.sweeps.progress import format_duration

SINGLE_VALUE_KEYS = ("threads", "rounds", "trainer", "name", "outputs_dir")
SEED = 1


def run(arguments: Arguments) -> int:
    """Check every variant, measure all of them, and print and write the results."""
    console = Console(stderr=True)
    with console.status("checking every variant"):
        jobs = compose_jobs(arguments)
    if CFG in arguments.flags:
        return print_configs(config for _, config in jobs)
    from posenc.benchmark.bench_report import print_benchmark, write_benchmark  # imports torch

    config = jobs[0][1]
    settings: Any = OmegaConf.to_container(config)
    costs = settings["published_costs"]
    rows = _measure(jobs, costs, console)
    source = {"source": costs["source"]} if costs else {}
    about = {"title": "Cost of positional encodings", **(settings["about"] or {}), **source}
    folder = Path(config.outputs_dir) / config.name / "bench"
    write_benchmark(folder, rows, arguments.command_line(), about)
    print_benchmark(Console(), rows, about)
    Console().print(str(folder / "index.html"), soft_wrap=True, highlight=False)
    return 0


def _measure(
    jobs: Sequence[tuple[list[str], DictConfig]], costs: Mapping[str, Any] | None, console: Console
) -> list[dict[str, Any]]:
    """Return the result rows of all variants; `costs` are published costs to compare with."""
    from posenc.benchmark.bench_results import published_ratios, read_published, result_rows
    from posenc.benchmark.measurements import (
        describe_machine,
        measure_peak_memory,
        measure_times,
        min_round_seconds,
    )
    from posenc.benchmark.variants import build_variants
    from posenc.model.device import select_device

    config = jobs[0][1]
    with console.status("checking every variant"):
        variants = build_variants(jobs)
        published = read_published(costs)
    threads = config.threads or cores()
    min_seconds = min_round_seconds(variants, threads)
    duration = format_duration(min_seconds * config.rounds)
    console.print(
        f"{plural(len(variants), 'variant')}, {plural(config.rounds, 'round')}: at least {duration}"
    )
    with console.status("starting") as status:
        peaks = measure_peak_memory(variants, threads, status.update)
        rounds = measure_times(variants, threads, status.update)
    machine = describe_machine(select_device(config), threads)
    rows = result_rows(variants, rounds, peaks, machine)
    return [row | published_ratios(row, published) for row in rows]


def compose_jobs(arguments: Arguments) -> list[tuple[list[str], DictConfig]]:
    """Return the overrides and the configuration of every job.

    Keys that only training uses, such as `seed`, are dropped from an experiment's grids. On the
    command line, they raise ConfigError.
    """
    folders = list(arguments.config_dirs)
    composer = Composer("bench", folders)
    known_keys = {*map(str, composer.defaults), "experiment"}
    for override in arguments.overrides:
        if root_key(override) not in known_keys:
            hint = did_you_mean(root_key(override), known_keys)
            raise ConfigError(f"{override}: unknown key for posenc bench{hint}")
    all_jobs = sweep_jobs("bench", arguments.overrides, folders)
    bench_jobs = [tuple(o for o in job if root_key(o) in known_keys) for job in all_jobs]
    jobs = [(list(job), _compose(job, composer)) for job in dict.fromkeys(bench_jobs)]
    for key in SINGLE_VALUE_KEYS:
        if len({str(config[key]) for _, config in jobs}) > 1:
            raise ConfigError(f"{key} must be the same for all variants; set a single value")
    return jobs


def _compose(job: Sequence[str], composer: Composer) -> DictConfig:
    """Return a job's configuration with the keys of conf/bench.yaml, resolved and checked."""
    values = compose_resolved(composer, job, drop_unknown=True)
    config = OmegaConf.create({**values, "seed": SEED})
    check_bench_settings(config)
    config.modules = trusted_modules(values)
    return config
