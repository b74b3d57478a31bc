"""Verdicts as Markdown, csv, HTML and terminal text, with the same numbers in each."""

from collections.abc import Sequence
from html import escape

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from posenc.claims.verdict import Verdict
from posenc.report.formats import csv_text, markdown_text
from posenc.report.html import LEFT
from posenc.report.verdicts import SIGNS, Line, numbers_text

COLOURS = {"holds": "bold green", "fails": "bold red", "undecided": "bold yellow"}
HEADS = ("verdict", "L", "claim", "left", "right", "difference", "seeds", "published")
COLUMNS = (
    *("claim", "verdict", "train_length", "comparison", "outcome", "left", "right", "unit"),
    *("difference", "low", "high", "scale", "margin", "confidence", "seeds", "published", "why"),
)
NUMBERS = ("L", "left", "right", "difference", "seeds")


def verdicts_csv(verdicts: Sequence[Verdict]) -> str:
    """A line for each comparison of each claim, unrounded; a ratio's difference is a share."""
    lines: list[Sequence[object]] = [COLUMNS]
    for verdict in verdicts:
        for found in verdict.findings:
            whole = (verdict.says, verdict.outcome, verdict.train_length)
            sides = (found.says, found.outcome, found.left, found.right, found.unit)
            interval = found.difference
            ends = (interval.mean, interval.low, interval.high) if interval else (None,) * 3
            scale = "ratio - 1" if found.ratio else "difference"
            asked = (scale, found.margin, found.confidence, " ".join(map(str, found.seeds)))
            lines.append((*whole, *sides, *ends, *asked, verdict.published, found.why))
    return csv_text(lines)


def verdicts_markdown(lines: Sequence[Line]) -> str:
    """A GitHub table; what a claim was compared as and what it lacks follow the claim."""
    rows = [HEADS, ["---"] * len(HEADS), *(_markdown_row(line) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def verdicts_html(lines: Sequence[Line]) -> str:
    """A table of the verdicts; each has its word and its sign beside its colour."""
    heads = "".join(
        f'<th scope="col"{"" if name in NUMBERS else LEFT}>{name}</th>' for name in HEADS
    )
    rows = "\n".join(_html_row(line) for line in lines)
    return (
        f'<div class="scroll"><table class="verdicts"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def verdicts_terminal(lines: Sequence[Line]) -> RichTable:
    """The verdict and L of each claim beside its text, its numbers and what it lacks."""
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for line in lines:
        told = [Text(line.says, "none" if line.part else "bold")]
        told += [Text(numbers_text(line))] if line.difference else []
        told += [Text(note, "dim") for note in line.notes]
        told += [Text(f"published: {line.published}", "dim")] if line.published else []
        outcome = Text(f"{SIGNS[line.outcome]} {line.outcome}", COLOURS[line.outcome])
        grid.add_row(outcome, "" if line.part else f"L={line.length}", Group(*told))
    return grid


def _markdown_row(line: Line) -> list[str]:
    says = markdown_text(line.says) if line.part else f"**{markdown_text(line.says)}**"
    told = "<br>".join([says, *map(markdown_text, line.notes)])
    where = "" if line.part else line.length
    rest = (line.left, line.right, line.difference, line.seeds, line.published)
    return [line.outcome, where, told, *map(markdown_text, rest)]


def _html_row(line: Line) -> str:
    outcome = f'<td class="text {line.outcome}">{SIGNS[line.outcome]} {line.outcome}</td>'
    notes = "".join(f"<small>{escape(note)}</small>" for note in line.notes)
    kind = "part" if line.part else "claim"
    says = f'<th scope="row" class="{kind}">{escape(line.says)}{notes}</th>'
    numbers = (line.left, line.right, line.difference, line.seeds)
    cells = "".join(f"<td>{escape(number)}</td>" for number in numbers)
    where = "" if line.part else line.length
    published = f'<td class="text wrap">{escape(line.published)}</td>'
    return f"<tr>{outcome}<td>{where}</td>{says}{cells}{published}</tr>"
