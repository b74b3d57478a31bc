"""`posenc evaluate`: more rows for a run that is there."""

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.folder import run_directory
from posenc.cli.measured import print_rows
from posenc.cli.trained import own_data
from posenc.config.components import build
from posenc.config.compose import LENGTH_KEYS
from posenc.config.errors import ConfigError
from posenc.config.explain import key_of
from posenc.config.settings import check_settings
from posenc.config.values import values_of
from posenc.data.build_data import evaluation_data
from posenc.data.dataset import Dataset
from posenc.data.tokenizers import load_tokenizer
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.requests import requested_rows
from posenc.model.build import build_encoding
from posenc.model.device import device_of
from posenc.runs.lock import INSTANT, lock
from posenc.runs.run_directory import RunDirectory
from posenc.sweeps.facts import check_evaluation, check_evaluation_data
from posenc.sweeps.grids import expand
from posenc.tracking.tracker import Tracker

PROTOCOLS = "evaluation.protocols"


def run(arguments: Arguments) -> int:
    """Measure what is asked; commas make a sweep, all of it checked before any is measured."""
    jobs = expand(None, arguments.overrides)
    asked = [
        OmegaConf.create(values_of("evaluate", overrides, arguments.config_dirs))
        for overrides in jobs
    ]
    targets = [run_directory(each.run) for each in asked]
    configs = [
        _config(target, each, overrides)
        for target, each, overrides in zip(targets, asked, jobs, strict=True)
    ]
    for target, config, each, overrides in zip(targets, configs, asked, jobs, strict=True):
        with lock(target.lock_file, wait=False, patience=INSTANT) as obtained:
            if not obtained:
                raise ConfigError(f"{target.name} is being run by another process; wait for it")
            rows = _evaluate(target, config, each, overrides)
        print_rows(target.name, rows)
    return 0


def _config(target: RunDirectory, asked: DictConfig, overrides: list[str]) -> DictConfig:
    """The run's own configuration with what is asked of this evaluation."""
    config = target.config()
    named = {key_of(override) for override in overrides}
    if "tokenizer" in named:
        raise ConfigError("tokenizer: a run reads in its own tokens; leave tokenizer out")
    if not named & set(LENGTH_KEYS):
        asked.evaluation.lengths = list(config.frozen.lengths)
    if "tasks" in config.evaluation.protocols and not named & {"data", "evaluation", PROTOCOLS}:
        asked.evaluation.protocols = ["tasks"]
    config.evaluation = asked.evaluation
    config.modules = asked.modules
    check_settings(config)
    check_evaluation(config, build_encoding(config, list(config.modules)))
    return config


def _evaluate(
    target: RunDirectory, config: DictConfig, asked: DictConfig, overrides: list[str]
) -> list[dict]:
    console = Console(stderr=True)
    tracker: Tracker = build(config.logger, name="logger", modules=list(config.modules))
    torch.set_num_threads(target.status().resolved.get("threads", torch.get_num_threads()))
    data = _data(target, config, asked, console)
    _choose_split(config, data, overrides)
    keys = requested_rows(config, data.fingerprint)
    with console.status("evaluating") as status:

        def on_progress(done: float, rate: float) -> bool:
            status.update(f"evaluating {done:.0%} · {rate:,.0f} tokens/s")
            return True

        rows = evaluate(target, config, data, keys, device_of(config), on_progress)
    tracker.start(target, config)
    tracker.finish(False)
    return rows


def _data(target: RunDirectory, config: DictConfig, asked: DictConfig, console: Console) -> Dataset:
    """The run's own data, or another corpus in the run's own tokens."""
    if asked.get("data") is None:
        remedy = (
            "name it as another corpus, in the run's own tokenizer: data=... evaluation.split=..."
        )
        return own_data(config, remedy, console.print)
    tokenizer = load_tokenizer(target.tokenizer_file)
    return evaluation_data(asked.data, tokenizer, config, console.print)


def _choose_split(config: DictConfig, data: Dataset, overrides: list[str]) -> None:
    """A corpus of one split is evaluated on it, unless another was asked for by name."""
    named = {key_of(override) for override in overrides}
    if "evaluation.split" not in named and len(data.splits) == 1:
        config.evaluation.split = data.splits[0]
    check_evaluation_data(config, data)
