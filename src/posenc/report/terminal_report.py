"""Prints a report: its main results, or all result tables, verdicts and notes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from posenc.config.errors import plural
from posenc.config.paths import experiment_command
from posenc.report.conclusions import budget_note, worse_than_trigram
from posenc.report.curve_set import CurveSet, DisplayedQuantity, describe_lengths, spread
from posenc.report.judge import Verdict
from posenc.report.report_results import Results
from posenc.report.result_rows import ResultRow, ResultSet, TableValue
from posenc.report.result_tables import comparison_notes
from posenc.report.run_labels import natural_key
from posenc.report.scale import exp, format_number
from posenc.report.table import RICH_STYLES, STYLE_SYMBOLS, Cell, Column, Table
from posenc.report.verdicts import (
    OUTCOME_STYLES,
    affected_lengths,
    claim_outcomes,
    summary,
    terminal_table,
)

PRINTED_TERMS = ("Model", "Training", "Training data", "Tokenizer", "Evaluation", "Seeds")
OUTCOME_WIDTH = 15  # characters of the longest outcome
BEST_SWAP_NOTE = (
    "swap: a change to the encoding after training. *: the best swaps of each encoding. For other"
    " lengths, use --full."
)
NOTE = (
    "*: best in its column, or not statistically distinguishable from the best. For reasons,"
    " descriptions of labels, other tables and limitations, use --full or open the page below,"
    " which also shows intervals."
)


def print_report(console: Console, results: Results, index: Path, *, full: bool) -> None:
    """Print the finding, tables and verdicts; the last line is the path of index.html."""
    console.print(Text(results.finding, "bold"))
    console.print()
    if full:
        _print_everything(console, results)
    else:
        _print_main_results(console, results)
    path = index.resolve()
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else index
    console.print(Text(str(path)), soft_wrap=True)


def _print_main_results(console: Console, results: Results) -> None:
    """Print short tables for each training length, and a line for each claim."""
    for table in _short_tables(results, console):
        console.print(table)
        console.print()
    for note in budget_note(results.experiment) if results.losses else ():
        console.print(note, soft_wrap=True)
        console.print()
    for heading, verdicts in results.verdicts.by_heading.items():
        console.print(Text(f"{heading}: {summary(verdicts)}", "bold"))
        for line in _verdict_lines(verdicts):
            if console.is_terminal:
                console.print(line, no_wrap=True, overflow="ellipsis")
            else:
                console.print(line, soft_wrap=True)
        console.print()
    folder = Path(results.experiment.folder).expanduser()
    for line in results.missing[:1]:
        command = experiment_command("status", folder)
        console.print(f"{line} see `{command}`", soft_wrap=True)
    for name, reason in results.experiment.corrupt.items():
        console.print(f"{name}: {reason}", soft_wrap=True, highlight=False)
    console.print(Text(NOTE, "dim"))


def _print_everything(console: Console, results: Results) -> None:
    for heading, verdicts in results.verdicts.by_heading.items():
        console.print(Text(f"{heading}: {summary(verdicts)}", "bold"))
        console.print(terminal_table(verdicts))
        console.print()
    for table in [*results.perplexity_tables, *results.accuracy_tables]:
        console.print(table)
        console.print()
    _print_list(console, "".join(results.missing[:1]), results.missing[1:])
    setup = [f"{term}: {value}" for term, value in results.setup if term in PRINTED_TERMS]
    _print_list(console, "Setup", setup)
    _print_list(console, "Conclusions", results.conclusions)
    _print_list(console, "Limitations", results.limitations)


def _verdict_lines(verdicts: Sequence[Verdict]) -> Iterator[Text]:
    """Yield a line for each claim, or none if all claims have a premise that is not met.

    If the outcome differs between training lengths, the line lists the lengths with this outcome.
    """
    outcomes = claim_outcomes(verdicts)
    if all(outcome == "premise not met" for outcome, _ in outcomes):
        return  # the summary above covers all of them
    for outcome, group in outcomes:
        style = OUTCOME_STYLES.get(outcome, "undecided")
        where = affected_lengths(outcome, group)
        prefix = f"{where}: " if where else ""
        styled_outcome = (f"{STYLE_SYMBOLS[style]}{outcome:<{OUTCOME_WIDTH}}  ", RICH_STYLES[style])
        yield Text.assemble(styled_outcome, f"{prefix}{group[0].claim.statement}")


def _short_tables(results: Results, console: Console) -> Iterator[Table]:
    """Yield tables of perplexity, then of accuracy.

    Swaps with parameters share one table per training length if it fits.
    """
    main_results = results.losses[: results.num_main_tables]
    for train_length in dict.fromkeys(curves.train_length for curves, _ in main_results):
        sets = [pair for pair in main_results if pair[0].train_length == train_length]
        swapped = [(curves, rows) for curves, rows in sets if curves.swapped_encoding]
        labels = {row.curve.label for _, rows in swapped for row in rows}
        if any(" " in label for label in labels) and (table := _swap_table(swapped)).fits(console):
            shown = {curves.swapped_encoding for curves, _ in swapped}
            sets = [
                (c, rows)
                for c, rows in sets
                if not (c.swapped_encoding or shown >= c.by_label.keys())
            ]
            yield from (_short_table(*pair, console) for pair in sets)
            yield table
        else:
            yield from (_short_table(*pair, console) for pair in sets)
    yield from (_short_table(*result, console) for result in results.accuracies)


def _swap_table(swapped: Sequence[ResultSet]) -> Table:
    """Return a table of swaps by parameter at a single length.

    This is the length with the most values or, if several tie, the longest of them.
    """
    values = {
        (curves.swapped_encoding or "", *row.curve.label.partition(" ")[::2]): row.values
        for curves, rows in swapped
        for row in rows
    }
    counts = Counter(x for by_length in values.values() for x in by_length)
    length = max(counts, key=lambda x: (counts[x], x))
    parameters = sorted({key[2] for key in values}, key=natural_key)  # "" comes first
    curves = swapped[0][0]
    grid = []
    for name, option in dict.fromkeys(key[:2] for key in values):
        cells = [values.get((name, option, p), {}).get(length) for p in parameters]
        shown = [_cell(curves.quantity, value) for value in cells]
        grid.append([f"{name} {option}" if len(swapped) > 1 else option, *shown])
    columns = [
        Column("swap", align="left"),
        *(Column(parameter or "default") for parameter in parameters),
    ]
    (relative,) = describe_lengths([length], curves.train_length)
    title = (
        f"{curves.quantity.name.capitalize()} at {length:.0f} tokens ({relative}) with swaps,"
        f" trained at L = {curves.train_length}: {curves.evaluation_key}"
    )
    notes = comparison_notes([rows for _, rows in swapped], [length])
    return Table(title, columns, grid, [BEST_SWAP_NOTE, *notes])


def _short_table(curves: CurveSet, rows: Sequence[ResultRow], console: Console) -> Table:
    """Return a table without intervals, with as many lengths as fit on the console.

    The lengths are spread evenly from the shortest to the longest.
    """
    for count in range(len(curves.x_values), 0, -1):
        table = _table_at_lengths(curves, rows, spread(curves.x_values, count))
        if table.fits(console):
            break
    return table


def _table_at_lengths(
    curves: CurveSet, rows: Sequence[ResultRow], lengths: Sequence[float]
) -> Table:
    quantity = curves.quantity
    names = describe_lengths(lengths, curves.train_length)
    columns = [
        Column(curves.label_heading, align="left"),
        *(Column(f"{x:.0f}", detail=name) for x, name in zip(lengths, names, strict=True)),
    ]
    grid = []
    for row in rows:
        values = [row.values.get(x) for x in lengths]
        cells = [_cell(quantity, value) for value in values]
        grid.append([row.curve.label, *cells])
    orders = {3} if worse_than_trigram(curves) else set()
    orders |= {curves.best_ngram[0]} if curves.best_ngram else set()
    for order in sorted(orders):
        cell = Cell(format_number(exp(curves.ngrams[order])), style="dim")
        grid.append([Cell(f"{order}-gram model", style="dim"), *[cell] * len(lengths)])
    counts = sorted({len(point.seeds) for curve in curves.curves for point in curve.points})
    seeds = plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
    return Table(
        f"{curves.title}, {seeds}",
        columns,
        grid,
        comparison_notes([rows], lengths),
    )


def _print_list(console: Console, heading: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    console.print(Text(heading, "bold"))
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="fold")  # wrap long paths instead of cutting them off
    for line in lines:
        grid.add_row(" -", Text(line))
    console.print(grid)
    console.print()


def _cell(quantity: DisplayedQuantity, value: TableValue | None) -> Cell:
    return Cell(quantity.format_mean(value.point), best=value.best) if value else Cell(None)
