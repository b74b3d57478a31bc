"""The runs of an experiment: a table of the report, runs.csv, ngrams.csv and blocks.csv."""

from collections.abc import Iterator

from posenc.report.experiment import Experiment, Run
from posenc.report.run_labels import swept_settings
from posenc.report.scale import format_number
from posenc.report.table import Column, Table, records_csv
from posenc.runs.loss_arrays import BY_POSITION
from posenc.runs.row_types import Row

ROW_KEYS = (
    "data_name",
    "data",
    "split",
    "protocol",
    "stride",
    "swap",
    "length",
    "count",
    "loss",
    "accuracy",  # tasks only
    "exact",  # tasks only
    "perplexity",
    "perplexity_per_word",
    "perplexity_per_byte",
    "tokens_per_second",
    "coverage",
    "tokens_hash",  # identifies the scored tokens
)


def runs_csv(experiment: Experiment) -> str:
    """Return CSV with a row for every measurement, and one for each run without measurements.

    Values are not rounded. The last columns are the settings in which the runs differ.
    """
    swept = swept_settings([run.config for run in experiment.runs])
    return records_csv(
        [
            {
                "run": run.name,
                "state": run.status.state,
                "encoding": run.label,
                "train_length": run.train_length,
                "seed": run.seed,
                "tokens": run.training_tokens(row),
                "model": run.config["choices"].get("model"),
                **{name: row.get(name) for name in ROW_KEYS},
                **settings,
            }
            for run, settings in zip(experiment.runs, swept, strict=True)
            for row in list(_measurements(run)) or ({},)
        ]
    )


def ngrams_csv(experiment: Experiment) -> str:
    """Return CSV with a row for each n-gram model trained on a run's tokens, unrounded."""
    return records_csv(
        [
            {"run": run.name, "train_length": run.train_length, "seed": run.seed, **row}
            for run in experiment.runs
            for row in run.ngrams
        ]
    )


def blocks_csv(experiment: Experiment) -> str:
    """Return CSV with a row for each block of text of each measurement with saved blocks."""
    names = ("data", "split", "protocol", "stride", "swap", "length")
    records = []
    measured = [(run, row) for run in experiment.runs for row in _measurements(run)]
    for run, row in measured:
        if (blocks := run.blocks(row)) is None:
            continue
        key = {"run": run.name, "tokens": run.training_tokens(row)}
        key |= {name: row.get(name) for name in names}
        pairs = zip(blocks.sums.tolist(), blocks.counts.tolist(), strict=True)
        records += ({**key, "block": i, "sum": s, "count": n} for i, (s, n) in enumerate(pairs))
    return records_csv(records)


def runs_table(experiment: Experiment) -> Table:
    """Return a table with the settings, state and validation loss of each run."""
    columns = [
        Column("run", align="left"),
        Column("encoding", align="left"),
        Column("state", align="left", wrap=any(run.status.error for run in experiment.runs)),
        Column("L"),
        Column("seed"),
        Column("tokens", format=","),
        Column("validation loss", format=format_number),
    ]
    rows = [
        [
            run.name,
            run.label,
            run.state,
            run.train_length,
            run.seed,
            run.status.tokens,
            run.metrics.get("validation_loss"),
        ]
        for run in experiment.runs
    ]
    return Table("Runs", columns, rows)


def _measurements(run: Run) -> Iterator[Row]:
    """Yield the rows of a run, without by_position rows that equal a nonoverlapping row.

    Both protocols score the same windows, so such rows come from one measurement.
    """
    identity = ("data", "split", "length", "swap", "at_tokens", "count", "loss")
    others = {
        tuple(map(row.get, identity)) for row in run.rows if row["protocol"] == "nonoverlapping"
    }
    for row in run.rows:
        if row["protocol"] != BY_POSITION or tuple(map(row.get, identity)) not in others:
            yield row
