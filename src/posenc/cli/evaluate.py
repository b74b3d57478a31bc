"""`posenc evaluate`: more rows for a run that is there."""

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from posenc.cli.arguments import Arguments
from posenc.config.components import build
from posenc.config.compose import LENGTH_KEYS, compose, resolve
from posenc.config.errors import ConfigError
from posenc.config.explain import key_of
from posenc.config.keys import refuse_strangers
from posenc.config.settings import check_settings, evaluation_lengths
from posenc.data.build import build_data, data_of_a_run
from posenc.data.dataset import Dataset
from posenc.data.tokenizers import load_tokenizer
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.rows import requested
from posenc.model.build import build_encoding
from posenc.record.lock import INSTANT, lock
from posenc.record.rundir import RunDirectory
from posenc.sweep.facts import check_reach
from posenc.tracking.tracker import Tracker

RATES = {"perplexity": 3, "perplexity_per_word": 2, "perplexity_per_byte": 4}


def run(arguments: Arguments) -> int:
    asked = compose("evaluate", arguments.overrides, arguments.config_dirs)
    known = compose("evaluate", [], arguments.config_dirs)
    refuse_strangers(OmegaConf.create(resolve(asked)), known)
    target = _run_directory(asked.run)
    config = _config(target, asked, arguments)
    with lock(target.lock_file, wait=False, patience=INSTANT) as obtained:
        if not obtained:
            raise ConfigError(f"{target.name} is being run by another process; wait for it")
        rows = _evaluate(target, config, asked, arguments)
    _print(target, rows)
    return 0


def _run_directory(path: Any) -> RunDirectory:
    if path is None:
        raise ConfigError("run is missing; give run=outputs/<experiment>/<run>")
    if not isinstance(path, str):
        raise ConfigError(f"run={path} is no path; give run=outputs/<experiment>/<run>")
    target = RunDirectory(Path(path))
    if not target.config_file.is_file():
        raise ConfigError(f"run={path} is no run directory: it has no config.yaml")
    return target


def _config(target: RunDirectory, asked: DictConfig, arguments: Arguments) -> DictConfig:
    """The run's own configuration with what is asked of this evaluation."""
    config = target.config()
    named = {key_of(override) for override in arguments.overrides}
    if not named & set(LENGTH_KEYS):
        asked.evaluation.lengths = list(config.frozen.lengths)
    config.evaluation = asked.evaluation
    config.modules = asked.modules
    config.kernel = target.status().resolved.get("kernel", config.kernel)
    check_settings(config)
    check_reach(config, build_encoding(config, list(config.modules)))
    return config


def _evaluate(
    target: RunDirectory, config: DictConfig, asked: DictConfig, arguments: Arguments
) -> list[dict]:
    console = Console(stderr=True)
    tracker: Tracker = build(config.logger, name="logger", modules=list(config.modules))
    torch.set_num_threads(target.status().resolved.get("threads", torch.get_num_threads()))
    data = _data(target, config, asked, console)
    _choose_split(config, data, arguments)
    keys = requested(config, data.fingerprint)
    with console.status("evaluating") as status:

        def go_on(done: float, rate: float) -> bool:
            status.update(f"evaluating {done:.0%} · {rate:,.0f} tokens/s")
            return True

        rows = evaluate(target, config, data, keys, go_on)
    tracker.start(target, config)
    tracker.evaluation(rows)
    tracker.finish(False)
    return rows


def _data(
    target: RunDirectory, config: DictConfig, asked: DictConfig, console: Console
) -> Dataset:
    """The run's own data, or another corpus in the run's own tokens."""
    if asked.get("data") is None:
        data = build_data(config, console.print)
        if data.fingerprint != config.frozen.fingerprint:
            raise ConfigError(
                f"the corpus is no longer what the run was trained on (fingerprint"
                f" {data.fingerprint}, then {config.frozen.fingerprint}); name it as another"
                f" corpus, in the run's own tokenizer: data=... evaluation.split=..."
            )
        return data
    tokenizer = load_tokenizer(target.tokenizer_file)
    return data_of_a_run(asked.data, tokenizer, config, console.print)


def _choose_split(config: DictConfig, data: Dataset, arguments: Arguments) -> None:
    """A corpus of one split is evaluated on it, unless another was asked for by name."""
    named = {key_of(override) for override in arguments.overrides}
    if "evaluation.split" not in named and len(data.splits) == 1:
        config.evaluation.split = data.splits[0]
    data.check(config.evaluation.split, max(evaluation_lengths(config)))


def _print(target: RunDirectory, rows: list[dict]) -> None:
    table = Table(title=f"{target.name} on {rows[0]['data_name']} ({rows[0]['split']})")
    for column in ("protocol", "length", "tokens", "loss", "perplexity", "per word", "per byte"):
        table.add_column(column, justify="left" if column == "protocol" else "right")
    for row in rows:
        table.add_row(
            row["protocol"],
            str(row["length"]),
            f"{row['count']:,}",
            f"{row['loss']:.6f}",
            *(
                "-" if row[rate] is None else f"{row[rate]:.{digits}f}"
                for rate, digits in RATES.items()
            ),
        )
    Console().print(table)
