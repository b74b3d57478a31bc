"""The result tables as CSV, with a column for each evaluation length and each interval bound."""

from collections.abc import Sequence
from typing import Any

from posenc.report.claim import MIN_SEEDS
from posenc.report.confidence import Band
from posenc.report.curve_set import CurveSet, DisplayedQuantity
from posenc.report.result_rows import RankedPoint, ResultRow
from posenc.report.result_tables import ratio_text, shown_published
from posenc.report.table import records_csv

SUFFIXES = ("low", "high", "text_low", "text_high", "best")


def tables_csv(sets: Sequence[tuple[CurveSet, Sequence[ResultRow]]]) -> str:
    """Return the result tables of all curve sets and the published curves as one CSV table."""
    lengths = sorted({x for curves, _ in sets for x in curves.x_values})
    early = any(row.early_tokens for _, rows in sets for row in rows)
    records = []
    for curves, rows in sets:
        published, quantity = shown_published(curves), curves.quantity
        for row in rows:
            label, points = row.curve.label, row.values.items()
            numbers = {x: quantity.from_mean(value.point.mean) for x, value in points}
            record = {**curves.key, curves.label_heading: label, "seeds": row.curve.seeds}
            for x in lengths:
                text = quantity.format(numbers[x]) if x in numbers else None
                record |= {f"{x:.0f}": text, **_intervals(x, row.values.get(x), quantity)}
            record["longest_over_train_length"] = ratio_text(numbers, curves)
            records.append(record | (_early_columns(row) if early else {}))
            if label in published:
                values = published[label].values
                texts = {f"{x:.0f}": quantity.format(values[x]) for x in lengths if x in values}
                ratio = ratio_text(values, curves)
                line = {
                    curves.label_heading: f"{label}, published",
                    "longest_over_train_length": ratio,
                }
                records.append(dict.fromkeys(records[-1]) | curves.key | texts | line)
    return records_csv(records)


def _intervals(x: float, value: RankedPoint | None, quantity: DisplayedQuantity) -> dict[str, Any]:
    """Return the columns that follow the value at one length.

    `low` and `high` are the t interval over seeds, `text_low` and `text_high` the bootstrap
    interval over text and seeds (or over text alone, with too few seeds).
    """
    cells: list[Any] = [None] * len(SUFFIXES)
    if value is not None:
        text, seeds = value.point.text_interval, _t_ends(value.point.band)
        ends = [*seeds, *((text.low, text.high) if text else (None, None))]
        numbers = (None if end is None else quantity.from_mean(end) for end in ends)
        rounded = [None if number is None else f"{number:.6g}" for number in numbers]
        cells = [*rounded, str(value.best).lower()]
    return {f"{x:.0f}_{suffix}": cell for suffix, cell in zip(SUFFIXES, cells, strict=True)}


def _early_columns(row: ResultRow) -> dict[str, Any]:
    """Return S and the fraction that early tokens explain, each with its t interval over seeds."""
    early = row.early_tokens
    bands = (early.slope, early.fraction) if early else (None, None)
    columns: dict[str, Any] = {}
    for name, band in zip(("S", "early_token_fraction"), bands, strict=True):
        numbers = (band.mean, *_t_ends(band)) if band else (None, None, None)
        texts = (None if number is None else f"{number:.6g}" for number in numbers)
        columns |= zip((name, f"{name}_low", f"{name}_high"), texts, strict=True)
    return columns


def _t_ends(band: Band) -> tuple[float | None, float | None]:
    """Return the ends of a t interval; None with too few seeds."""
    return (band.low, band.high) if band.seeds >= MIN_SEEDS else (None, None)
