"""The rows of an evaluation as a table in the terminal."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]
WIDTH = 110  # so that every number is whole; a narrower terminal breaks the lines
COLUMNS: dict[str, Callable[[Row], str | None]] = {
    "protocol": lambda row: row["protocol"],
    "stride": lambda row: row["stride"] and str(row["stride"]),
    "swap": lambda row: row["swap"],
    "length": lambda row: str(row["length"]),
    "tokens": lambda row: f"{row['count']:,}",
    "coverage": lambda row: None if row["coverage"] == 1 else f"{100 * row['coverage']:.3g} %",
    "loss": lambda row: f"{row['loss']:.6f}",
    "perplexity": lambda row: _number(row["perplexity"], 3),
    "per word": lambda row: _number(row["perplexity_per_word"], 2),
    "per byte": lambda row: _number(row["perplexity_per_byte"], 4),
    "accuracy": lambda row: _number(row.get("accuracy"), 4),
    "exact": lambda row: _number(row.get("exact"), 4),
}


def print_rows(name: str, rows: Sequence[Row]) -> None:
    """A line for each row; a column that says nothing of any is left out."""
    title = f"{name} on {rows[0]['data_name']} ({rows[0]['split']})"
    table = Table(title=title, title_justify="left", box=None, header_style="dim", pad_edge=False)
    cells = {column: [of(row) for row in rows] for column, of in COLUMNS.items()}
    said = {column: texts for column, texts in cells.items() if any(texts)}
    for column in said:
        words = column in ("protocol", "swap")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for line in zip(*said.values(), strict=True):
        table.add_row(*(text or "-" for text in line))
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(table)


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
