"""Result tables: perplexity or accuracy of every encoding at every evaluation length."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posenc.report.curves import CurveSet, Point, describe_lengths
from posenc.report.experiment import Experiment
from posenc.report.published_curves import PublishedCurve
from posenc.report.table import MISSING, Cell, Column, Table, records_csv

ROW_KEYS = (
    *("data_name", "data", "split", "protocol", "stride", "swap", "length", "count", "loss"),
    *("accuracy", "exact"),  # tasks only
    *("perplexity", "perplexity_per_word", "perplexity_per_byte", "tokens_per_second"),
    *("coverage", "tokens_hash"),  # identify the scored tokens
)


def number_text(value: float) -> str:
    """Return a number with two decimals; large numbers get fewer digits."""
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}"


@dataclass(frozen=True)
class _TableQuantity:
    """A quantity of a table: how to compute it from a point, format it and choose the best value.

    `mean` describes the mean over seeds in tooltips.
    """

    name: str
    value: Callable[[Point], float]
    text: Callable[[float], str]
    best: Callable[[Iterable[float]], float]
    mean: str
    note: str


PERPLEXITY = _TableQuantity(
    "perplexity",
    value=lambda point: point.perplexity,
    text=number_text,
    best=min,
    mean="loss in nats per token",
    note="Perplexity per token: the exponential of the mean loss over seeds, which is the geometric"
    " mean of the seeds' perplexities. The lowest value in each column is marked.",
)
ACCURACY = _TableQuantity(
    "accuracy",
    value=lambda point: point.mean,
    text="{:.3f}".format,
    best=max,
    mean="accuracy",
    note="Fraction of answer tokens that the model ranks first, given the correct preceding answer"
    " tokens; mean over seeds. The highest value in each column is marked.",
)


def perplexity_table(curves: CurveSet) -> Table:
    """Return the perplexity table of a curve set, with published values below their encodings."""
    lengths = set(curves.x_values)
    published = curves.published_in("perplexity").items()
    shown = {label: curve for label, curve in published if lengths & curve.values.keys()}
    sources = "; ".join(dict.fromkeys(curve.source for curve in shown.values()))
    notes = [f"Published rows are from other models on other data: {sources}."] if sources else []
    return _table(PERPLEXITY, curves, shown, notes)


def accuracy_table(curves: CurveSet) -> Table:
    """Return the accuracy table of a task."""
    return _table(ACCURACY, curves, {}, [])


def tables_csv(curve_sets: Sequence[CurveSet], tables: Sequence[Table]) -> str:
    """Return the tables of the curve sets as one csv with a column for each evaluation length."""
    lengths = sorted({length for curves in curve_sets for length in curves.x_values})
    records = []
    for curves, table in zip(curve_sets, tables, strict=True):
        for row in table.grid:
            label, seeds, *values, ratio = (cell.value for _, cell in row)
            by_length = dict(zip(curves.x_values, values, strict=True))
            numbers = {str(length): by_length.get(length) for length in lengths}
            key = {**curves.key, "encoding": label, "seeds": seeds}
            records.append({**key, **numbers, "longest_over_train_length": ratio})
    return records_csv(records)


def runs_csv(experiment: Experiment) -> str:
    """Return a csv line for every evaluation row, unrounded, or one for a run without rows."""
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
    """Return a table of the runs; its links to their files are relative to `report/`."""
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
    rows = []
    for run in experiment.runs:
        files = [(file.partition(".")[0], f"../{run.name}/{file}") for file in run.files]
        rows.append(
            [
                Cell(run.name, links=[(run.name, f"../{run.name}/")]),
                run.label,
                run.state,
                run.train_length,
                run.seed,
                run.status.tokens,
                run.metrics.get("validation_loss"),
                Cell(" ".join(name for name, _ in files), links=files),
            ]
        )
    return Table("", columns, rows)


def _table(
    quantity: _TableQuantity,
    curves: CurveSet,
    published: Mapping[str, PublishedCurve],
    notes: Sequence[str],
) -> Table:
    """Return a row for each curve, followed by a row for the published curve of its label."""
    lengths, length = [int(n) for n in curves.x_values], curves.train_length
    relative = describe_lengths(lengths, length)
    values = {c.label: {p.x: quantity.value(p) for p in c.points} for c in curves.curves}
    best = {n: quantity.best(v[n] for v in values.values() if n in v) for n in lengths}
    rows: list[list[Cell | str]] = []
    for curve in curves.curves:
        cells = [_cell(curve.point_at(n), quantity, best[n]) for n in lengths]
        rows.append([curve.label, curve.seeds, *cells, _ratio(values[curve.label], curves)])
        if curve.label in published:
            numbers = published[curve.label].values
            texts = [number_text(numbers[n]) if n in numbers else None for n in lengths]
            row = (f"{curve.label}, published", None, *texts, _ratio(numbers, curves))
            rows.append([Cell(text, style="dim") for text in row])
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
    return Table(title, columns, rows, [quantity.note, *notes, ratio], key_columns=2)


def _cell(point: Point | None, quantity: _TableQuantity, best: float) -> Cell:
    if point is None:
        return Cell(None)
    text, band = quantity.text(quantity.value(point)), point.band
    tooltip = f"mean {quantity.mean} {point.mean:.4f} over {point.tokens:,} tokens"
    if band.description:
        tooltip += f"; {band.low:.4f} to {band.high:.4f}, {band.description}"
    return Cell(text, best=text == quantity.text(best), tooltip=tooltip)


def _ratio(values: Mapping[Any, float], curves: CurveSet) -> str:
    """Return the value at the longest length divided by that at the training length."""
    longest, reference = values.get(curves.x_values[-1]), values.get(curves.train_length)
    return number_text(longest / reference) if reference and longest is not None else MISSING
