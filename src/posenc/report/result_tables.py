"""Result tables: perplexity or accuracy of every encoding at every evaluation length.

The notes below a table explain its values, intervals and marks.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from posenc.report.bootstrap import DESCRIPTION
from posenc.report.confidence import CONFIDENCE, MIN_SEEDS, Band
from posenc.report.curve_set import PERPLEXITY, Curve, CurveSet, DisplayedQuantity, describe_lengths
from posenc.report.published_curves import PublishedCurve
from posenc.report.result_rows import ResultRow, TableValue, incomparable_lengths
from posenc.report.run_labels import label_notes
from posenc.report.scale import exp, format_number
from posenc.report.table import MISSING, Cell, Column, Table

FIXED_TARGET = "fixed_target"
BEST_NOTE = (
    "Bold: the best value of each column, and every value not statistically distinguishable"
    f" from it because the {CONFIDENCE:.0%} interval of their difference, paired by seed,"
    " includes 0 ({methods})."
)
BEST_WITHOUT_INTERVALS_NOTE = (
    "Bold: the best value of each column. There are too few seeds to tell whether the others differ"
    " from it."
)
INCOMPARABLE_NOTE = (
    "The values at {lengths} tokens average over different numbers of scored tokens and cannot be"
    " compared; none of them is marked as the best. Evaluate all runs with the same"
    " evaluation.budget_tokens."
)
UNEQUAL_SEEDS_NOTE = "Not averaged over all seeds: {values}."
SEEDS_NOTE = (
    f"±: half the width of the {CONFIDENCE:.0%} t interval over seeds, which does not account for"
    " the choice of the evaluation text."
)
TEXT_NOTE = (
    "A different evaluation text of the same kind and size would shift all values of a column"
    f" together: their {CONFIDENCE:.0%} intervals over {{variation}} extend at most from"
    f" {{low:+.1%}} to {{high:+.1%}} relative to the value ({DESCRIPTION}). This shift cancels in"
    " the difference between two values of a column."
)
EARLY_NOTE = (
    "S: slope of the least-squares fit loss = a + S / T over all lengths T from L on, in nats per"
    " window. Early tokens: the fraction of the gain from L to the longest length that is explained"
    " by having fewer tokens with little context; above 100%, the estimate exceeds the gain."
)
FIXED_NOTE = (
    "Rows with fixed targets score the same tokens at every length, so only the context changes."
    " The best of them are marked separately."
)
NGRAM_NOTE = (
    "n-gram models: interpolated Kneser-Ney models trained on the same tokens as the runs. They"
    " predict every token of the same text from the preceding tokens, regardless of the window"
    " length."
)


def result_tables(sets: Sequence[tuple[CurveSet, Sequence[ResultRow]]]) -> list[Table]:
    """Return a table for each curve set, with published perplexities below their encodings.

    Rows with fixed targets are added to the table of non-overlapping windows if that table has all
    of their lengths.
    """
    fixed_targets: dict[int, list[Sequence[ResultRow]]] = {}
    table_indices = []
    for i, (curves, rows) in enumerate(sets):
        candidates = (j for j, (other, _) in enumerate(sets) if _can_join(curves, other))
        if (table_index := next(candidates, None)) is None:
            table_indices.append(i)
        else:
            fixed_targets.setdefault(table_index, []).append(rows)
    return [_table(*sets[i], fixed_targets.get(i, [])) for i in table_indices]


def matching_published_curves(curves: CurveSet) -> dict[str, PublishedCurve]:
    """Return the published curves with a perplexity at any of the set's lengths, by label."""
    if curves.quantity is not PERPLEXITY:
        return {}
    lengths, published = set(curves.x_values), curves.published_in("perplexity").items()
    return {label: curve for label, curve in published if lengths & curve.values.keys()}


def format_length_ratio(curve: Curve, curves: CurveSet) -> str:
    """Return the ratio of the value at the longest length to that at the training length."""
    ratio = curves.length_ratio(curve, curves.x_values[-1])
    return MISSING if ratio is None else format_number(ratio)


def format_published_ratio(values: Mapping[Any, float], curves: CurveSet) -> str:
    """Return the ratio of the published values at these lengths."""
    longest, reference = values.get(curves.x_values[-1]), values.get(curves.train_length)
    return format_number(longest / reference) if reference and longest is not None else MISSING


def _can_join(curves: CurveSet, other: CurveSet) -> bool:
    """Return whether fixed targets can be shown in the table of another curve set."""
    a, b = curves.evaluation_key, other.evaluation_key
    return (
        (a.protocol, b.protocol) == (FIXED_TARGET, "nonoverlapping")
        and (a.data, a.split, a.swap) == (b.data, b.split, b.swap)
        and curves.swapped_encoding == other.swapped_encoding
        and curves.train_length == other.train_length
        and set(curves.x_values) <= set(other.x_values)
    )


def _table(
    curves: CurveSet, rows: Sequence[ResultRow], fixed_targets: Sequence[Sequence[ResultRow]]
) -> Table:
    """Return a table with each curve followed by its fixed targets and its published curve."""
    quantity, lengths = curves.quantity, curves.x_values
    relative = describe_lengths(curves.x_values, curves.train_length)
    has_early_tokens = any(row.early_tokens for row in rows)
    published = matching_published_curves(curves)
    columns = [
        Column(curves.label_heading, align="left"),
        Column("seeds"),
        *(Column(f"{x:.0f}", detail=text) for x, text in zip(lengths, relative, strict=True)),
        Column(f"{relative[-1]} / L"),
        *((Column("S", detail="nats"), Column("early tokens")) if has_early_tokens else ()),
    ]
    grid: list[list[Cell | str]] = []
    for row in rows:
        label = row.curve.label
        all_fixed = (other for others in fixed_targets for other in others)
        fixed = [other for other in all_fixed if other.curve.label == label]
        names = [label, *(f"{label}, fixed targets" for _ in fixed)]
        for name, shown in zip(names, [row, *fixed], strict=True):
            cells = [_cell(quantity, shown.values.get(x)) for x in lengths]
            ratio = Cell(format_length_ratio(shown.curve, curves))
            last = [ratio, *(_early_cells(shown) if has_early_tokens else ())]
            grid.append([name, shown.curve.seeds, *cells, *last])
        if label in published:
            numbers = published[label].values
            texts = [format_number(numbers[x]) if x in numbers else None for x in lengths]
            texts = [f"{label}, published", None, *texts, format_published_ratio(numbers, curves)]
            grid.append(_dim_row(texts, len(columns)))
    for order, loss in curves.ngrams.items():
        texts = [f"{order}-gram model", None, *[format_number(exp(loss))] * len(lengths)]
        grid.append(_dim_row(texts, len(columns)))
    notes = [
        *label_notes(row.curve.label for row in rows),
        *value_notes(quantity, [rows, *fixed_targets]),
        *([FIXED_NOTE] if fixed_targets else []),
        *_source_notes(published),
        f"{relative[-1]} / L: {quantity.name} at {lengths[-1]:.0f} tokens divided by that at"
        f" {curves.train_length}.",
        *([EARLY_NOTE] if has_early_tokens else []),
        *([NGRAM_NOTE] if curves.ngrams else []),
    ]
    return Table(curves.title, columns, grid, notes, key_columns=2)


def _dim_row(texts: Sequence[str | None], width: int) -> list[Cell | str]:
    """Return a row of `width` dim cells, of which those after the last text are empty."""
    padding = [None] * (width - len(texts))
    return [Cell(text, style="dim") for text in (*texts, *padding)]


def _source_notes(published: Mapping[str, PublishedCurve]) -> list[str]:
    sources = "; ".join(dict.fromkeys(curve.source for curve in published.values()))
    note = f"Published rows are from other models, often on other data: {sources}."
    return [note] if sources else []


def _cell(quantity: DisplayedQuantity, value: TableValue | None) -> Cell:
    if value is None:
        return Cell(None)
    point, band = value.point, value.point.band
    interval_text = _half_width(band, quantity.format, quantity.from_mean)
    text = f"{quantity.format_mean(point)}{interval_text}"
    tooltip = f"mean {quantity.mean_name} {point.mean:.4f} over {point.tokens:,} tokens"
    if band.description:
        tooltip += f"; {band.low:.4f} to {band.high:.4f}, {band.description}"
    if interval := point.text_interval:
        tooltip += f"; {interval.low:.4f} to {interval.high:.4f} over {interval.variation}"
    if difference := value.difference:
        limits = f"{difference.low:+.4f} to {difference.high:+.4f}"
        tooltip += f"; difference from the best {difference.mean:+.4f} ({limits})"
    return Cell(text, best=value.best, tooltip=tooltip)


def _early_cells(row: ResultRow) -> list[Cell]:
    """Return the cells of S and of the fraction that early tokens explain."""
    if row.early_tokens is None:
        return [Cell(None), Cell(None)]
    slope, fraction = row.early_tokens.slope, row.early_tokens.fraction
    return [
        Cell(f"{format(band.mean)}{_half_width(band, format)}" if band else None)
        for band, format in ((slope, "{:.2f}".format), (fraction, "{:.0%}".format))
    ]


def _half_width(
    band: Band, format: Callable[[float], str], transform: Callable[[float], float] = float
) -> str:
    """Return " ±" and half the width of the transformed t interval; "" if the band is not one."""
    low, high = transform(band.low), transform(band.high)
    return f" ±{format((high - low) / 2)}" if band.is_t_interval else ""


def comparison_notes(
    row_groups: Sequence[Sequence[ResultRow]], lengths: Collection[float] = ()
) -> list[str]:
    """Return notes on values that cannot be compared, and on means that exclude some seeds.

    The rows of a table are grouped by curve set. If `lengths` is given, other lengths are ignored.
    Rows of different groups may have the same label; the notes do not tell them apart.
    """
    incomparable = {x for rows in row_groups for x in incomparable_lengths(rows)}
    lengths_text = ", ".join(str(x) for x in sorted(incomparable) if not lengths or x in lengths)
    notes = [INCOMPARABLE_NOTE.format(lengths=lengths_text)] if lengths_text else []
    if partial := _partial_means(row_groups, lengths):
        notes.append(UNEQUAL_SEEDS_NOTE.format(values="; ".join(dict.fromkeys(partial))))
    return notes


def _partial_means(
    row_groups: Sequence[Sequence[ResultRow]], lengths: Collection[float]
) -> list[str]:
    """Return the labels, lengths and seeds of values that average over fewer seeds than others."""
    seeds_by_row = [
        (
            row.curve.label,
            {
                int(x): {*value.point.seeds}
                for x, value in row.values.items()
                if not lengths or x in lengths
            },
        )
        for rows in row_groups
        for row in rows
    ]
    all_seeds = {s for _, by_length in seeds_by_row for s in set().union(*by_length.values())}
    partial = []
    for label, by_length in seeds_by_row:
        groups = {frozenset(seeds) for seeds in by_length.values()} - {frozenset(all_seeds)}
        for seeds in sorted(groups, key=sorted):
            matching = [str(x) for x, other in by_length.items() if other == seeds]
            where = "" if len(matching) == len(by_length) else f" at {', '.join(matching)} tokens"
            noun = "seed" if len(seeds) == 1 else "seeds"
            partial.append(f"{label}{where} ({noun} {', '.join(map(str, sorted(seeds)))})")
    return partial


def value_notes(
    quantity: DisplayedQuantity, row_groups: Sequence[Sequence[ResultRow]]
) -> list[str]:
    """Return the notes on the values, their intervals and the marks.

    The rows are grouped by curve set, as in `comparison_notes`.
    """
    values = [value for rows in row_groups for row in rows for value in row.values.values()]
    methods = dict.fromkeys(value.difference.method for value in values if value.difference)
    notes = [quantity.note]
    if any(len(rows) > 1 for rows in row_groups):
        note = BEST_NOTE if methods else BEST_WITHOUT_INTERVALS_NOTE
        notes.append(note.replace("{methods}", "; ".join(methods)))
    notes += comparison_notes(row_groups)
    if any(len(value.point.seeds) >= MIN_SEEDS for value in values):
        notes.append(SEEDS_NOTE)
    intervals = [interval for value in values if (interval := value.point.text_interval)]
    if intervals and quantity is PERPLEXITY:
        low = min(exp(interval.low - interval.mean) for interval in intervals) - 1
        high = max(exp(interval.high - interval.mean) for interval in intervals) - 1
        variation = " or ".join(sorted({interval.variation for interval in intervals}))
        notes.append(TEXT_NOTE.format(variation=variation, low=low, high=high))
    return notes
