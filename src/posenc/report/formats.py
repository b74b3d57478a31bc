"""Tables as Markdown, csv and terminal text, with the same numbers in each."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from posenc.report.charts import Dot, Frame
from posenc.report.collect import Experiment, Run
from posenc.report.curves import Panel
from posenc.report.tables import MISSING, Row, Table

PANEL_KEY = ("data", "split", "protocol", "stride", "swap", "train_length")
UNBOUNDED = 10_000  # columns of text, to measure what a table would like to have
ROW_KEYS = ("data_name", "data", "split", "protocol", "stride", "swap", "length", "count", "loss")
ROW_ANSWERS = ("accuracy", "exact")  # of tasks
ROW_RATES = ("perplexity", "perplexity_per_word", "perplexity_per_byte", "tokens_per_second")
ROW_TARGETS = ("coverage", "tokens_hash")  # which tokens were scored, as far as a version told
ROW_NUMBERS = (*ROW_KEYS, *ROW_ANSWERS, *ROW_RATES, *ROW_TARGETS)


def to_markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """GitHub tables with the best cells in bold; `notes` follow as paragraphs."""
    paragraphs: list[str] = []
    for table in tables:
        at = [f"{n} ({span})" for n, span in zip(table.lengths, table.spans, strict=True)]
        header = ["encoding", "seeds", *at, table.growth]
        rule = ["---", *["---:"] * (len(header) - 1)]
        lines = [header, rule, *(_markdown_row(row) for row in table.rows)]
        grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        paragraphs += [f"**{markdown_text(table.title)}**", grid, markdown_text(table.caption)]
    return "\n\n".join([*paragraphs, *(markdown_text(note) for note in notes)]) + "\n"


def to_csv(tables: Sequence[Table]) -> str:
    """All tables as one: what was measured, the encoding, then a column for each length."""
    lengths = sorted({at for table in tables for at in table.lengths})
    heads = (*PANEL_KEY, "encoding", "seeds", *lengths, "longest_over_train_length")
    lines: list[list[object]] = [list(heads)]
    for table in tables:
        for row in table.rows:
            at = {n: cell.text for n, cell in zip(table.lengths, row.cells, strict=True)}
            cells = [at.get(length, MISSING) for length in lengths]
            lines.append([*panel_key(table.panel), row.label, row.seeds, *cells, row.growth])
    return csv_text(lines)


def points_csv(panels: Sequence[Panel], at: str) -> str:
    """The losses of panels in nats per token, a line for each point; `band` says what low and
    high are."""
    names = [at, "loss", "low", "high", "band", "perplexity", "seeds", "tokens"]
    lines: list[list[object]] = [[*PANEL_KEY, "encoding", *names]]
    for panel in panels:
        for series in panel.series:
            for p in series.points:
                loss = (f"{x:.6f}" for x in (p.mean, p.band.low, p.band.high))
                end = (p.band.description or None, f"{p.perplexity:.6f}", len(p.seeds), p.count)
                lines.append([*panel_key(panel), series.label, f"{p.at:.6g}", *loss, *end])
    return csv_text(lines)


def dots_csv(
    panels: Sequence[Panel], frames: Sequence[Frame], line_name: str, x: str, y: str
) -> str:
    """The dots of a chart with a frame for each panel, a line for each; bands as they are drawn."""
    names = [line_name, "published", x, f"{x}_low", f"{x}_high", y, "low", "high", "band"]
    lines: list[list[object]] = [[*PANEL_KEY, *names]]
    for panel, frame in zip(panels, frames, strict=True):
        for line in frame.lines:
            about = [*panel_key(panel), line.label, str(line.published).lower()]
            lines += [[*about, *_dot(dot)] for dot in line.dots]
    return csv_text(lines)


def _dot(dot: Dot) -> list[object]:
    ends = (dot.across.low, dot.across.high) if dot.across else (dot.at, dot.at)
    numbers = (dot.at, *ends, dot.band.mean, dot.band.low, dot.band.high)
    return [*(f"{number:.6g}" for number in numbers), dot.band.description or None]


def panel_key(panel: Panel) -> list[object]:
    """What a panel is of, in the order of PANEL_KEY."""
    of = panel.measurement
    return [of.data_name, of.split, of.protocol, of.stride, of.swap, panel.train_length]


def runs_csv(experiment: Experiment) -> str:
    """A line for each evaluation row of each run, unrounded, and one for a run without any."""
    names = [
        "run",
        "state",
        "encoding",
        "train_length",
        "seed",
        *ROW_NUMBERS,
    ]
    return csv_text([names, *(line for run in experiment.runs for line in _run_lines(run))])


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([MISSING if item is None else item for item in line] for line in lines)
    return text.getvalue()


def to_terminal(table: Table, console: Console) -> list[RichTable]:
    """The table, cut into pieces below each other where the console is too narrow for it."""
    wide = console.options.update(width=UNBOUNDED)
    for columns in range(len(table.lengths), 0, -1):
        starts = range(0, len(table.lengths), columns)
        pieces = [_piece(table, start, start + columns) for start in starts]
        if all(Measurement.get(console, wide, p).maximum <= console.width for p in pieces):
            break
    return pieces


def _piece(table: Table, start: int, end: int) -> RichTable:
    piece = RichTable()
    piece.add_column("encoding", no_wrap=True)
    piece.add_column("seeds", justify="right", no_wrap=True)
    for at, span in list(zip(table.lengths, table.spans, strict=True))[start:end]:
        piece.add_column(f"{at}\n{span}", justify="right", no_wrap=True)
    last = end >= len(table.lengths)
    if last:
        piece.add_column(table.growth.replace(" / ", "\n/ "), justify="right", no_wrap=True)
    for row in table.rows:
        cells = [
            Text(f"*{cell.text}", "bold green") if cell.best else Text(cell.text)
            for cell in row.cells[start:end]
        ]
        piece.add_row(Text(row.label), row.seeds, *cells, *([row.growth] if last else []))
    return piece


def _markdown_row(row: Row) -> list[str]:
    cells = [f"**{cell.text}**" if cell.best else cell.text for cell in row.cells]
    return [markdown_text(row.label), row.seeds, *cells, row.growth]


def markdown_text(text: str) -> str:
    """Text in which nothing is read as a table's edge, as emphasis or as HTML."""
    return re.sub(r"([|*<`\\])", r"\\\1", text)


def _run_lines(run: Run) -> list[list[object]]:
    about = [run.name, run.status.state, run.label, run.train_length, run.seed]
    if not run.rows:
        return [[*about, *[None] * len(ROW_NUMBERS)]]
    return [[*about, *(row.get(name) for name in ROW_NUMBERS)] for row in run.rows]
