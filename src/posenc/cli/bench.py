"""`posenc bench`: what encodings cost in time and memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.benchmark import settings
from posenc.benchmark.machine import machine
from posenc.benchmark.measure import peaks, times
from posenc.benchmark.published import beside, read_published
from posenc.benchmark.results import rows_of
from posenc.benchmark.variants import variants_of
from posenc.benchmark.write import show, write
from posenc.cli.arguments import Arguments
from posenc.config.components import user_modules
from posenc.config.compose import compose
from posenc.config.errors import ConfigError, did_you_mean
from posenc.config.grids import sweep_jobs
from posenc.config.overrides import root_key
from posenc.config.resolve import compose_resolved
from posenc.model.device import device_of
from posenc.runs.hardware import cores

ONCE = ("threads", "rounds", "trainer", "name", "outputs_dir")
SEED = 1


def run(arguments: Arguments) -> int:
    console = Console(stderr=True)
    with console.status("checking every variant"):
        jobs = composed_jobs(arguments)
        variants = variants_of(jobs)
        config = jobs[0][1]
        plain: Any = OmegaConf.to_container(config)
        published = read_published(plain["published_costs"])
    threads = config.threads or cores()
    with console.status("starting") as status:
        grown = peaks(variants, threads, status.update)
        rounds = times(variants, threads, status.update)
    found = rows_of(variants, rounds, grown, machine(device_of(config), threads))
    rows = [row | beside(row, published) for row in found]
    texts = _texts(plain)
    folder = Path(config.outputs_dir) / config.name / "bench"
    write(folder, rows, arguments.command_line(), texts)
    show(Console(), rows, texts)
    Console().print(str(folder / "bench.md"), soft_wrap=True, highlight=False)
    return 0


def composed_jobs(arguments: Arguments) -> list[tuple[list[str], DictConfig]]:
    """Every job's overrides and configuration; what only training reads is left out.

    An experiment may say more than a benchmark reads, such as seeds; a person may not.
    """
    folders = list(arguments.config_dirs)
    known = compose("bench", [], folders)
    readable = {*map(str, known), "experiment"}
    for override in arguments.overrides:
        if root_key(override) not in readable:
            hint = did_you_mean(root_key(override), readable)
            raise ConfigError(f"{override}: posenc bench reads no such key{hint}")
    every = sweep_jobs("bench", arguments.overrides, folders)
    read = dict.fromkeys(tuple(word for word in job if root_key(word) in readable) for job in every)
    jobs = [(list(words), _composed(words, folders, known)) for words in read]
    for key in ONCE:
        given = {str(config[key]) for _, config in jobs}
        if len(given) > 1:
            raise ConfigError(f"{key}: one process measures all variants; give a single value")
    return jobs


def _composed(words: Sequence[str], folders: Sequence[Path], known: DictConfig) -> DictConfig:
    """One job's configuration: the keys of conf/bench.yaml, resolved and checked."""
    values = compose_resolved("bench", words, folders, known, only_known=True)
    config = OmegaConf.create({**values, "seed": SEED})
    settings.check(config)
    config.modules = sorted({*config.modules, *user_modules(values)})
    return config


def _texts(config: dict[str, Any]) -> dict[str, str]:
    """The experiment's own texts, and the source of what is published."""
    source = {"source": config["published_costs"]["source"]} if config["published_costs"] else {}
    return {"title": "What position costs", **(config["about"] or {}), **source}
