"""`posenc tune`: find settings, such as the learning rate, with the lowest validation loss."""

import csv
import io
import shlex
from pathlib import Path

from posenc.api.tuning import Search, Trial, tune
from posenc.cli.arguments import CFG, Arguments
from posenc.cli.command_setup import print_configs
from posenc.config.compose import Composer
from posenc.config.console import Console
from posenc.config.grids import sweep_jobs
from posenc.config.overrides import positive_integer, split_keys
from posenc.config.search_space import split_intervals
from posenc.jobs.job_config import compose_sweep_jobs
from posenc.report.table import Column, Table, records_csv
from posenc.runs.files import corrupt_file_error, read_text, write_atomic
from posenc.runs.lock import lock
from posenc.runs.plan_file import PLAN_LOCK

DEFAULT_TRIALS = 10
FIXED_COLUMNS = ("run", "job", "validation_loss")
"""The columns of tuning.csv besides the tuned hyperparameters."""


def run(arguments: Arguments) -> int:
    """Search, print the best trial of each job, and write all trials to `tuning.csv`.

    Other trials in the file are kept, such as those of other searches with the same name.
    """
    options, words = split_keys(arguments.overrides, ("trials",))
    if CFG in arguments.flags:
        jobs = sweep_jobs("train", split_intervals(words)[1], arguments.config_dirs)
        return print_configs(compose_sweep_jobs(jobs, Composer("train", arguments.config_dirs)))
    console = Console(stderr=True)
    trials = positive_integer("trials", options.get("trials", str(DEFAULT_TRIALS)), 100_000)
    command = arguments.command_line()
    sweep, searches, complete = tune(words, arguments.config_dirs, trials, command, console.print)
    file = sweep.folder / "tuning.csv"
    records = [_record(search, trial) for search in searches for trial in search.trials]
    if records:
        _print_best(searches)
        with lock(file.with_name(PLAN_LOCK)):  # other searches may update the file
            write_atomic(file, records_csv(_with_other_searches(file, records)))
        console.print(f"all trials: {file}", highlight=False, soft_wrap=True)
    if not complete:
        console.print("interrupted; rerun the same command to resume the search")
    return 0 if complete else 1


def _record(search: Search, trial: Trial) -> dict[str, object]:
    return {
        "run": trial.run.name,
        "job": shlex.join(search.job),
        **trial.values,
        "validation_loss": trial.loss,
    }


def _with_other_searches(file: Path, records: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the rows of other runs in `file`, then `records`, all with the same keys."""
    runs = {record["run"] for record in records}
    try:
        text = io.StringIO(read_text(file, errors="replace"), newline="")
        saved = list(csv.DictReader(text, restkey="", restval=""))
    except FileNotFoundError:
        saved = []
    except (OSError, ValueError, csv.Error) as error:
        raise corrupt_file_error(file, error) from None
    others = [row for row in saved if row.keys() >= {"run", "job"} and row["run"] not in runs]
    tuned = dict.fromkeys(key for row in [*others, *records] for key in row)
    tuned_keys = [key for key in tuned if key not in ("", *FIXED_COLUMNS)]
    keys = ["run", "job", *tuned_keys, "validation_loss"]
    return [{key: row.get(key) for key in keys} for row in [*others, *records]]


def _print_best(searches: list[Search]) -> None:
    best = [(search, search.best) for search in searches]
    keys = list(searches[0].trials[0].values)
    columns = [
        Column("run", align="left"),
        *(Column(key, format=".4g") for key in keys),
        Column("validation loss", format=".4f"),
        Column("trials"),
    ]
    rows = [
        [trial.run.name, *(trial.values[key] for key in keys), trial.loss, len(search.trials)]
        if trial
        else ["all trials failed", *(None for _ in keys), None, len(search.trials)]
        for search, trial in best
    ]
    Console().print(Table("Best trials", columns, rows))
