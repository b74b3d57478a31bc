"""`posenc evaluate`: evaluate a trained run at more lengths, with swaps, or on other data."""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from posenc.cli.arguments import Arguments
from posenc.cli.run_selection import find_run, select_runs
from posenc.cli.targets import training_data, trusted_run_config
from posenc.config.compose import LENGTH_KEYS, Composer
from posenc.config.errors import ConfigError
from posenc.config.grids import expand
from posenc.config.identity import check_identity
from posenc.config.overrides import override_key
from posenc.config.resolve import compose_resolved
from posenc.config.settings import check_settings
from posenc.data.build_data import evaluation_data
from posenc.data.tokenizers import load_tokenizer
from posenc.evaluation.evaluate import evaluate
from posenc.evaluation.requests import requested_rows
from posenc.jobs.validate import validate_evaluation, validate_evaluation_data
from posenc.model.build import build_encoding
from posenc.model.device import select_device
from posenc.report.table import Column, Table
from posenc.runs.lock import LOCK_TIMEOUT, lock
from posenc.runs.run_directory import RunDirectory
from posenc.tracking.build_tracker import build_tracker

Row = dict[str, Any]
MIN_WIDTH = 110
"""The minimum width of the table in characters; in narrower terminals, its lines wrap."""
COLUMNS = {
    "protocol": Column("protocol", align="left"),
    "stride": Column("stride"),
    "swap": Column("swap", align="left"),
    "at_tokens": Column("training tokens", format=","),
    "length": Column("length"),
    "count": Column("tokens", format=","),
    "coverage": Column("coverage", format=lambda fraction: f"{100 * fraction:.3g} %"),
    "loss": Column("loss", format=".6f"),
    "perplexity": Column("perplexity", format=".3f"),
    "perplexity_per_word": Column("per word", format=".2f"),
    "perplexity_per_byte": Column("per byte", format=".4f"),
    "accuracy": Column("accuracy", format=".4f"),
    "exact": Column("exact", format=".4f"),
}
"""Key of an evaluation row -> column of the printed table."""


def run(arguments: Arguments) -> int:
    """Evaluate one or more runs, after all evaluations have been validated."""
    jobs = expand(None, select_runs(arguments), arguments.config_dirs)
    composer = Composer("evaluate", arguments.config_dirs)
    requests = [OmegaConf.create(compose_resolved(composer, job)) for job in jobs]
    runs = [find_run(request.run) for request in requests]
    set_keys = [{override_key(override) for override in job} for job in jobs]
    configs = [
        _evaluation_config(trusted_run_config(run, list(request.modules), arguments), request, keys)
        for run, request, keys in zip(runs, requests, set_keys, strict=True)
    ]
    for directory, config, request, keys in zip(runs, configs, requests, set_keys, strict=True):
        with lock(directory.lock_file, timeout=LOCK_TIMEOUT) as acquired:
            if not acquired:
                raise ConfigError(f"{directory.name} is being run by another process; wait for it")
            rows = _evaluate(directory, config, request, keys)
        _print_rows(directory.name, rows)
    return 0


def _evaluation_config(config: DictConfig, request: DictConfig, set_keys: set[str]) -> DictConfig:
    """Return a run's configuration with the requested evaluation settings.

    Raises RunError if the configuration has been edited since the run was planned.
    """
    if "tokenizer" in set_keys:
        raise ConfigError(
            "tokenizer: a run is evaluated with its training tokenizer; omit tokenizer"
        )
    if not set_keys & set(LENGTH_KEYS):
        request.evaluation.lengths = list(config.frozen.lengths)
    protocol_keys = {"data", "evaluation", "evaluation.protocols"}
    if "tasks" in config.evaluation.get("protocols", []) and not set_keys & protocol_keys:
        request.evaluation.protocols = ["tasks"]
    config.evaluation = request.evaluation
    check_settings(config)
    validate_evaluation(config, build_encoding(config, list(config.modules)))
    check_identity(config)
    return config


def _evaluate(
    run: RunDirectory, config: DictConfig, request: DictConfig, set_keys: set[str]
) -> list[Row]:
    console = Console(stderr=True)
    tracker = build_tracker(config)
    torch.set_num_threads(run.status().resolved.get("threads", torch.get_num_threads()))
    if request.get("data") is None:
        remedy = "to evaluate on the changed corpus, set data=... evaluation.split=..."
        data = training_data(config, remedy, console.print)
    else:
        tokenizer = load_tokenizer(run.tokenizer_file)
        data = evaluation_data(request.data, tokenizer, config, console.print)
    if "evaluation.split" not in set_keys and len(data.splits) == 1:  # use the only split
        config.evaluation.split = data.splits[0]
    validate_evaluation_data(config, data)
    keys = requested_rows(config, data.fingerprint)
    with console.status("evaluating") as status:

        def on_progress(done: float, rate: float) -> bool:
            status.update(f"evaluating {done:.0%} · {rate:,.0f} tokens/s")
            return True

        rows = evaluate(run, config, data, keys, select_device(config), on_progress)
    tracker.start(run, config)
    tracker.finish(False)
    return rows


def _print_rows(name: str, rows: Sequence[Row]) -> None:
    """Print a table of the rows, without columns that are empty in all of them."""
    title = f"{name} on {rows[0]['data_name']} ({rows[0]['split']})"
    rows = [{**row, "coverage": None if row["coverage"] == 1 else row["coverage"]} for row in rows]
    shown = [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]
    cells = [[row.get(key) for key in shown] for row in rows]
    console = Console()
    console.width = max(console.width, MIN_WIDTH)
    console.print(
        Table(title, [COLUMNS[key] for key in shown], cells, key_columns=shown.index("length") + 1)
    )
