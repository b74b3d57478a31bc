"""The tables of results: perplexity or accuracy of every encoding at every evaluation length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc.report.curves import CurveSet, Point, describe_lengths
from posenc.report.experiment import Experiment, Run
from posenc.report.published_curves import PublishedCurve
from posenc.report.table import MISSING, Cell, Column, Table, records_csv

ROW_KEYS = (
    *("data_name", "data", "split", "protocol", "stride", "swap", "length", "count", "loss"),
    *("accuracy", "exact"),  # of tasks
    *("perplexity", "perplexity_per_word", "perplexity_per_byte", "tokens_per_second"),
    *("coverage", "tokens_hash"),  # the tokens that were scored
)
TableRow = list[Cell | str]


def number_text(value: float) -> str:
    """Return two decimals as in the literature, fewer where they would not be significant."""
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}"


@dataclass(frozen=True)
class _Quantity:
    """A number of a point: how it is computed, shown and described, and which one is the best."""

    name: str
    value: Callable[[Point], float]
    text: Callable[[float], str]
    best: Callable[[Iterable[float]], float]
    mean: str
    note: str


PERPLEXITY = _Quantity(
    "perplexity",
    value=lambda point: point.perplexity,
    text=number_text,
    best=min,
    mean="loss in nats per token",
    note="Perplexity per token: the exponential of the loss averaged over seeds, which is the"
    " geometric mean of the seeds' perplexities. The lowest of each column is marked.",
)
ACCURACY = _Quantity(
    "accuracy",
    value=lambda point: point.mean,
    text="{:.3f}".format,
    best=max,
    mean="accuracy",
    note="Fraction of answers that the model ranks first, averaged over seeds. The highest of each"
    " column is marked.",
)


def perplexity_table(curves: CurveSet) -> Table:
    """Return the perplexities of a curve set, with published curves below their encodings."""
    lengths = set(curves.places)
    published = curves.published_in("perplexity").items()
    shown = {label: curve for label, curve in published if lengths & curve.values.keys()}
    sources = "; ".join(dict.fromkeys(curve.source for curve in shown.values()))
    notes = [f"Published rows are other models on other data: {sources}."] if sources else []
    return _table(PERPLEXITY, curves, shown, notes)


def accuracy_table(curves: CurveSet) -> Table:
    """Return the accuracies of a task."""
    return _table(ACCURACY, curves, {}, [])


def tables_csv(tables: Sequence[tuple[CurveSet, Table]]) -> str:
    """Return all tables as one: the measurement, the encoding, then a column for each length."""
    lengths = sorted({place for curves, _ in tables for place in curves.places})
    records = []
    for curves, table in tables:
        for row in table.grid:
            label, seeds, *values, ratio = (cell.value for _, cell in row)
            by_length = dict(zip(curves.places, values, strict=True))
            numbers = {str(length): by_length.get(length) for length in lengths}
            key = {**curves.key, "encoding": label, "seeds": seeds}
            records.append({**key, **numbers, "longest_over_train_length": ratio})
    return records_csv(records)


def runs_csv(experiment: Experiment) -> str:
    """Return every evaluation row of every run, unrounded; a run without rows has a line too."""
    return records_csv(
        [
            {
                "run": run.name,
                "state": run.status.state,
                "encoding": run.label,
                "train_length": run.train_length,
                "seed": run.seed,
                **{name: row.get(name) for name in ROW_KEYS},
            }
            for run in experiment.runs
            for row in run.rows or ({},)
        ]
    )


def runs_table(experiment: Experiment) -> Table:
    """Return the runs with links to their folders and files, as from `report/` beside them."""
    columns = [
        Column("run", align="left"),
        Column("encoding", align="left"),
        Column("state", align="left", wrap=any(run.status.error for run in experiment.runs)),
        Column("L"),
        Column("seed"),
        Column("tokens", format=","),
        Column("validation loss", format=number_text),
        Column("files", align="left"),
    ]
    return Table("", columns, [_run_cells(run) for run in experiment.runs])


def _table(
    quantity: _Quantity,
    curves: CurveSet,
    published: Mapping[str, PublishedCurve],
    notes: Sequence[str],
) -> Table:
    """Return a row for each curve, and one below it for the published curve with its label."""
    lengths, length = [int(place) for place in curves.places], curves.train_length
    relative = describe_lengths(lengths, length)
    values = {c.label: {p.at: quantity.value(p) for p in c.points} for c in curves.curves}
    best = {n: quantity.best(v[n] for v in values.values() if n in v) for n in lengths}
    rows: list[TableRow] = []
    for curve in curves.curves:
        cells = [_cell(curve.at(n), quantity, best[n]) for n in lengths]
        rows.append([curve.label, curve.seeds, *cells, _ratio(values[curve.label], curves)])
        if curve.label in published:
            numbers = published[curve.label].values
            rows.append(_reference_row(f"{curve.label}, published", numbers, curves))
    columns = [
        Column("encoding", align="left"),
        Column("seeds"),
        *(Column(str(n), detail=text) for n, text in zip(lengths, relative, strict=True)),
        Column(f"{relative[-1]} / L"),
    ]
    ratio = (
        f"{relative[-1]} / L: {quantity.name} at {lengths[-1]} tokens divided by that at {length}."
    )
    title = f"{quantity.name.capitalize()}, trained at L = {length}: {curves.measurement}"
    return Table(title, columns, rows, [quantity.note, *notes, ratio], keys=2)


def _cell(point: Point | None, quantity: _Quantity, best: float) -> Cell:
    if point is None:
        return Cell(None)
    text, band = quantity.text(quantity.value(point)), point.band
    tooltip = f"mean {quantity.mean} {point.mean:.4f} over {point.tokens:,} tokens"
    if band.description:
        tooltip += f"; {band.low:.4f} to {band.high:.4f}, {band.description}"
    return Cell(text, best=text == quantity.text(best), tooltip=tooltip)


def _reference_row(name: str, values: Mapping[int, float], curves: CurveSet) -> TableRow:
    """Return a row of numbers that are not of the experiment's runs, in grey."""
    numbers = (values.get(int(place)) for place in curves.places)
    texts = [None if number is None else number_text(number) for number in numbers]
    return [Cell(text, tone="quiet") for text in (name, None, *texts, _ratio(values, curves))]


def _ratio(values: Mapping[Any, float], curves: CurveSet) -> str:
    """Return the value at the longest length divided by that at the training length."""
    far, near = values.get(curves.places[-1]), values.get(curves.train_length)
    return number_text(far / near) if near and far is not None else MISSING


def _run_cells(run: Run) -> list[Cell | str | float | None]:
    files = [(file.partition(".")[0], f"../{run.name}/{file}") for file in run.files]
    return [
        Cell(run.name, links=[(run.name, f"../{run.name}/")]),
        run.label,
        run.state,
        run.train_length,
        run.seed,
        run.status.tokens,
        run.metrics.get("validation_loss"),
        Cell(" ".join(name for name, _ in files), links=files),
    ]
