"""Pieces of HTML in which every text is escaped."""

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from posenc.report.collect import Experiment, Run
from posenc.report.curves import Point, Series
from posenc.report.reading import state_of
from posenc.report.tables import MISSING, Row, Table, number_text

TEXTS = ("run", "encoding", "files", "state")
LEFT = ' class="text"'
WRAPPED = ' class="text wrap"'
BEST = ' class="best"'


def paragraphs(texts: Iterable[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def bullets(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def link(target: str, text: str) -> str:
    return f'<a href="{escape(quote(target))}">{escape(text)}</a>'


def definitions(items: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in items)


def extrapolation_table(table: Table) -> str:
    """The table with seeds, mean and band of each cell as its tooltip."""
    spans = zip(table.lengths, table.spans, strict=True)
    heads = "".join(f'<th scope="col">{at}<small>{span}</small></th>' for at, span in spans)
    series = {series.label: series for series in table.panel.series}
    lines = "\n".join(
        f"<tr>{_table_cells(table, row, series.get(row.label))}</tr>" for row in table.rows
    )
    return (
        f'<div class="scroll"><table class="extrapolation"><caption>{escape(table.title)}</caption>'
        f'<thead><tr><th scope="col" class="text">encoding</th><th scope="col">seeds</th>{heads}'
        f'<th scope="col">{table.growth}</th></tr></thead>\n<tbody>{lines}</tbody></table>'
        f'</div>\n<p class="note">{escape(table.caption)}</p>'
    )


def runs_table(experiment: Experiment) -> str:
    columns = ("run", "encoding", "state", "L", "seed", "tokens", "validation loss", "files")
    heads = "".join(
        f'<th scope="col"{LEFT if name in TEXTS else ""}>{name}</th>' for name in columns
    )
    lines = "\n".join(f"<tr>{_run_cells(run)}</tr>" for run in experiment.runs)
    return f"<table><thead><tr>{heads}</tr></thead>\n<tbody>{lines}</tbody></table>"


def _run_cells(run: Run) -> str:
    loss = run.last.get("validation_loss")
    validation = MISSING if loss is None else number_text(loss)
    numbers = (run.train_length, run.seed, f"{run.status.tokens:,}", validation)
    files = " ".join(link(f"../{run.name}/{file}", file.partition(".")[0]) for file in run.files)
    state = WRAPPED if run.status.error else LEFT
    return (
        f'<th scope="row">{link(f"../{run.name}/", run.name)}</th>'
        f"<td{LEFT}>{escape(run.label)}</td><td{state}>{escape(state_of(run))}</td>"
        + "".join(f"<td>{number}</td>" for number in numbers)
        + f"<td{LEFT}>{files}</td>"
    )


def _table_cells(table: Table, row: Row, series: Series | None) -> str:
    points = [series.at(at) if series else None for at in table.lengths]
    cells = "".join(
        f"<td{BEST if cell.best else ''}{_tooltip(point, table.of)}>{cell.text}</td>"
        for point, cell in zip(points, row.cells, strict=True)
    )
    name = f'<th scope="row">{escape(row.label)}</th>'
    return f"{name}<td>{row.seeds}</td>{cells}<td>{row.growth}</td>"


def _tooltip(point: Point | None, name: str) -> str:
    if point is None:
        return ""
    text = f"mean {name} {point.mean:.4f} over {point.count:,} tokens"
    if point.band.description:
        text += f"; {point.band.low:.4f} to {point.band.high:.4f}, {point.band.description}"
    return f' title="{text}"'
