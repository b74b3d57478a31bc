"""The main tables: perplexity or accuracy of every encoding at every evaluation length."""

from collections.abc import Mapping, Sequence

from posenc.report.curve_data import Curve, CurveSet, Point, describe_lengths
from posenc.report.experiment import Experiment, Run
from posenc.report.published_curves import PublishedCurve
from posenc.report.table import MISSING, Cell, Column, Table, csv_text

CURVE_SET_KEYS = ("data", "split", "protocol", "stride", "swap", "train_length")
ROW_KEYS = (
    *("data_name", "data", "split", "protocol", "stride", "swap", "length", "count", "loss"),
    *("accuracy", "exact"),  # of tasks
    *("perplexity", "perplexity_per_word", "perplexity_per_byte", "tokens_per_second"),
    *("coverage", "tokens_hash"),  # the tokens that were scored
)


def perplexity_table(curves: CurveSet, published: Mapping[str, PublishedCurve]) -> Table:
    """Return the perplexities of a curve set, with published curves below their encodings."""
    rows: list[list[Cell | str]] = []
    for curve in curves.curves:
        rows.append(_perplexity_row(curve, curves))
        if curve.label in published:
            rows.append(_published_row(curve.label, published[curve.label], curves))
    notes = [
        "Perplexity per token: the exponential of the loss averaged over seeds. The lowest of each"
        " column is marked."
    ]
    if sources := "; ".join(dict.fromkeys(curve.source for curve in published.values())):
        notes += [f"Published rows are other models on other data: {sources}."]
    title = f"Perplexity, trained at L = {curves.train_length}: {curves.measurement}"
    return Table(title, _columns(curves), rows, [*notes, _ratio_note(curves, "perplexity")], keys=2)


def accuracy_table(curves: CurveSet) -> Table:
    """Return the accuracies of a task, with three decimals."""
    lengths = _lengths(curves)
    best = {n: max(_accuracy(curve.at(n)) for curve in curves.curves) for n in lengths}
    rows: list[list[Cell | str]] = []
    for curve in curves.curves:
        texts = {n: _accuracy(curve.at(n)) or MISSING for n in lengths}
        far, near = curve.at(lengths[-1]), curve.at(curves.train_length)
        ratio = number_text(far.mean / near.mean) if far and near and near.mean else MISSING
        cells = (
            Cell(text, best=text == best[n], tooltip=_tooltip(curve.at(n), "accuracy"))
            for n, text in texts.items()
        )
        rows.append([curve.label, curve.seeds, *cells, ratio])
    notes = [
        "Fraction of answers that the model ranks first, averaged over seeds. The highest of each"
        " column is marked."
    ]
    title = f"Accuracy, trained at L = {curves.train_length}: {curves.measurement}"
    return Table(title, _columns(curves), rows, [*notes, _ratio_note(curves, "accuracy")], keys=2)


def tables_csv(tables: Sequence[tuple[CurveSet, Table]]) -> str:
    """Return all tables as one: the measurement, the encoding, then a column for each length."""
    lengths = sorted({n for curves, _ in tables for n in _lengths(curves)})
    heads = (*CURVE_SET_KEYS, "encoding", "seeds", *lengths, "longest_over_train_length")
    lines: list[Sequence[object]] = [heads]
    for curves, table in tables:
        for row in table.grid:
            label, seeds, *values, ratio = (cell.value for _, cell in row)
            by_length = dict(zip(_lengths(curves), values, strict=True))
            numbers = [by_length.get(length) for length in lengths]
            lines.append([*curve_set_values(curves), label, seeds, *numbers, ratio])
    return csv_text(lines)


def runs_csv(experiment: Experiment) -> str:
    """Return every evaluation row of every run, unrounded; a run without rows has a line too."""
    lines: list[Sequence[object]] = [
        ("run", "state", "encoding", "train_length", "seed", *ROW_KEYS),
    ]
    for run in experiment.runs:
        key = (run.name, run.status.state, run.label, run.train_length, run.seed)
        lines += [(*key, *(row.get(name) for name in ROW_KEYS)) for row in run.rows or ({},)]
    return csv_text(lines)


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


def curve_set_values(curves: CurveSet) -> list[object]:
    """Return what a curve set measures, in the order of CURVE_SET_KEYS."""
    of = curves.measurement
    return [of.data_name, of.split, of.protocol, of.stride, of.swap, curves.train_length]


def perplexity_ratio(curve: Curve, train_length: int, longest: int) -> float | None:
    """Return perplexity at the longest length divided by that at the training length."""
    far, near = curve.at(longest), curve.at(train_length)
    return far.perplexity / near.perplexity if far and near else None


def number_text(value: float) -> str:
    """Return two decimals as in the literature, fewer where they would not be significant."""
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}"


def _columns(curves: CurveSet) -> list[Column]:
    lengths = _lengths(curves)
    relative = describe_lengths(lengths, curves.train_length)
    pairs = zip(lengths, relative, strict=True)
    return [
        Column("encoding", align="left"),
        Column("seeds"),
        *(Column(str(length), detail=text) for length, text in pairs),
        Column(f"{relative[-1]} / L"),
    ]


def _ratio_note(curves: CurveSet, name: str) -> str:
    lengths = _lengths(curves)
    relative = describe_lengths(lengths, curves.train_length)[-1]
    return (
        f"{relative} / L: {name} at {lengths[-1]} tokens divided by that at {curves.train_length}."
    )


def _lengths(curves: CurveSet) -> tuple[int, ...]:
    return tuple(int(place) for place in curves.places)


def _perplexity_row(curve: Curve, curves: CurveSet) -> list[Cell | str]:
    lengths, cells = _lengths(curves), []
    for length in lengths:
        point, best = curve.at(length), curves.lowest(length)
        text = number_text(point.perplexity) if point else MISSING
        lowest = best is not None and text == number_text(best[1].perplexity)
        cells.append(Cell(text, best=lowest, tooltip=_tooltip(point, "loss in nats per token")))
    ratio = perplexity_ratio(curve, curves.train_length, max(lengths))
    return [curve.label, curve.seeds, *cells, MISSING if ratio is None else number_text(ratio)]


def _published_row(label: str, curve: PublishedCurve, curves: CurveSet) -> list[Cell | str]:
    lengths = _lengths(curves)
    near, far = curve.values.get(curves.train_length), curve.values.get(max(lengths))
    values = (curve.values.get(length) for length in lengths)
    cells = (Cell(None if v is None else number_text(v), tone="quiet") for v in values)
    ratio = number_text(far / near) if near and far else MISSING
    name = Cell(f"{label}, published", tone="quiet")
    return [name, Cell(None, tone="quiet"), *cells, Cell(ratio, tone="quiet")]


def _accuracy(point: Point | None) -> str:
    return f"{point.mean:.3f}" if point else ""


def _tooltip(point: Point | None, name: str) -> str:
    if point is None:
        return ""
    band = point.band
    interval = f"; {band.low:.4f} to {band.high:.4f}, {band.description}"
    mean = f"mean {name} {point.mean:.4f} over {point.count:,} tokens"
    return mean + (interval if band.description else "")


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
