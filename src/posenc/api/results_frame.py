"""`posenc.results`: the evaluation rows of an experiment as a data frame."""

import warnings
from os import PathLike
from pathlib import Path

import pandas as pd

from posenc.config.errors import printable
from posenc.config.paths import OUTPUTS
from posenc.report.experiment import read_experiment


def results(folder: str | PathLike[str]) -> pd.DataFrame:
    """Return a data frame with one row for each evaluation row in an experiment's folder.

    `folder` is a path or the name of a folder in `outputs`.

    The first columns describe the run: `run` (its name), `label` (its encoding and the settings in
    which the runs differ), `encoding`, `train_length`, `seed` and `training_tokens`. `comparable`
    is False for rows that reports leave out, because most runs with the same training length used a
    different evaluation budget, longest evaluation length (`fixed_target` only) or definition of a
    custom swap, or because the run has another row of the same measurement and budget that scored
    more tokens. The other columns are the keys of the evaluation rows, such as `protocol`,
    `length`, `swap`, `loss` (in nats per token) and `perplexity`. Runs that cannot be read are
    skipped with a warning. Raises ConfigError if the folder has no runs, and RunError if none has
    been evaluated.
    """
    path = Path(folder)
    experiment = read_experiment(path if path.exists() else OUTPUTS / path)
    for name, reason in experiment.corrupt.items():
        warnings.warn(printable(f"{name} was skipped: {reason}"), stacklevel=2)
    comparable = {id(row) for run in experiment.runs for row in run.comparable_rows}
    return pd.DataFrame(
        {
            "run": run.name,
            "label": run.label,
            "encoding": run.encoding,
            "train_length": run.train_length,
            "seed": run.seed,
            "training_tokens": run.training_tokens(row),
            "comparable": id(row) in comparable,
            **row,
        }
        for run in experiment.runs
        for row in run.saved_rows
    )
