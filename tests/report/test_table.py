"""A table in every format: aligned and escaped text, with the best cells marked."""

import csv
import io
import re
from typing import Any

import pytest
from rich.console import Console

from posenc.report.page import render_block
from posenc.report.table import MISSING, Cell, Column, Table, csv_text, escape_latex

HOSTILE = "100% of A_B & <b>C</b> ~ {x} \\input | #1"
TABLE = Table(
    title="Perplexity, trained at L = 64",
    columns=[
        Column("encoding", align="left"),
        Column("seeds"),
        Column("64", detail="L", format=".2f"),
        Column("128", detail="2L", format=lambda value: f"{value:.1f} ppl"),
    ],
    rows=[["alibi", 3, 35.3123, Cell(34.62, best=True)], [HOSTILE, 3, 36.0, None]],
    notes=["Run `posenc report`."],
    key_columns=2,
)


def printed(table: Table, width: int) -> str:
    console = Console(file=(text := io.StringIO()), width=width)
    console.print(table)
    return text.getvalue()


def test_csv_has_the_unrounded_values() -> None:
    header, *rows = csv.reader(io.StringIO(TABLE.to_csv()))
    assert header == ["encoding", "seeds", "64", "128"]
    assert rows == [["alibi", "3", "35.3123", "34.62"], [HOSTILE, "3", "36.0", MISSING]]


def test_csv_has_no_formulas_that_a_spreadsheet_would_run() -> None:
    formulas = [
        "=HYPERLINK(1)",
        "\t=HYPERLINK(1)",
        "@SUM(1)",
        "+1+1",
        "-1+cmd|' /C calc'!A0",
        "＝1",
    ]
    values = ["-", "-2", "+1.5", "-inf", -3e-07, "L+50", "a=b", None]
    (read,) = csv.reader(io.StringIO(csv_text([[*formulas, *values]])))
    assert read == [*(f"'{text}" for text in formulas), *values[:4], "-3e-07", "L+50", "a=b", "-"]


def test_markdown_aligns_columns_and_marks_the_best_in_bold() -> None:
    lines = TABLE.to_markdown().splitlines()
    assert lines[0] == "**Perplexity, trained at L = 64**"
    assert lines[2:5] == [
        "| encoding | seeds | 64 (L) | 128 (2L) |",
        "| --- | ---: | ---: | ---: |",
        "| alibi | 3 | 35.31 | **34.6 ppl** |",
    ]
    assert (
        "<b>" not in lines[5].replace("\\<b>", "") and len(re.findall(r"(?<!\\)\|", lines[5])) == 5
    )
    assert lines[-1] == TABLE.notes[0]


def test_html_links_and_line_breaks_are_escaped_in_markdown() -> None:
    text = "<img src=x>\n\n# [a](javascript:b)\n[c]: d"
    table = Table(text, [Column(text)], [[Cell(text, details=[text])]], [text])
    escaped = r"\<img src=x>  # [a]\(javascript:b) [c]\: d"
    markdown = table.to_markdown()
    assert markdown.count(escaped) == 5
    assert not re.search(r"(?<!\\)<(?!br>)", markdown)
    assert [line for line in markdown.split("\n") if line.startswith(("#", "[c]"))] == []


def test_latex_is_balanced_and_escaped() -> None:
    text = TABLE.to_latex()
    assert "alibi & 3 & 35.31 & \\textbf{34.6 ppl} \\\\" in text
    assert escape_latex(HOSTILE) in text and "\\texttt{posenc report}" in text
    bare = re.sub(r"\\[{}\\%&$#_]", "", text.replace("\\\\\n", "\n"))
    depths = [bare[:i].count("{") - bare[:i].count("}") for i in range(len(bare) + 1)]
    assert min(depths) == 0 and depths[-1] == 0
    assert not re.search(r"[%#$_~^]", bare)
    assert text.count("\\begin{") == text.count("\\end{") == 2


def test_a_wrapping_column_is_as_wide_as_the_page_allows() -> None:
    table = Table("", [Column("claim", align="left", wrap=True), Column("L")], [["word " * 40, 64]])
    assert "\\begin{tabularx}{\\linewidth}{Xr}" in table.to_latex()
    lines = printed(table, 60).splitlines()
    assert max(map(len, lines)) <= 60 and " ".join(lines).count("word") == 40


def test_html_is_escaped_and_has_tooltips_and_details(read_html: Any) -> None:
    cell = Cell(1.5, details=["why: `code`"], style="bad", tooltip="mean 1.5")
    table = Table(HOSTILE, [Column("run", align="left"), Column("loss")], [["one", cell]])
    page = render_block(table) + render_block(TABLE)
    first, second = read_html(page).tables
    assert "<b>C" not in page
    assert "<small>why: <code>code</code></small>" in page
    bad = first.rows[1][1]
    assert (bad.text, bad.details) == ("✗ 1.5", "why: code")
    assert bad.attributes == {"class": "right bad", "title": "mean 1.5"}
    _, alibi, hostile = second.rows
    assert [cell.text for cell in alibi] == ["alibi", "3", "35.31", "34.6 ppl"]
    assert [cell.text for cell in hostile] == [HOSTILE, "3", "36.00", MISSING]
    assert alibi[3].attributes["class"] == "right best"
    assert alibi[2].attributes["title"] == "35.3123"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_narrow_terminal_gets_pieces_that_repeat_the_key_columns(width: int) -> None:
    columns = [Column("encoding", align="left"), Column("seeds")]
    columns += [Column(str(64 * 2**i), format=".2f") for i in range(10)]
    table = Table("Title", columns, [["alibi", 3, *map(float, range(10))]], key_columns=2)
    text = printed(table, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert text.count("alibi") == sum("encoding" in line for line in lines)
    assert (text.count("alibi") > 1) == (width < 100)
    assert [n for n in re.findall(r"\d\.00", text)] == [f"{i}.00" for i in range(10)]


def test_a_long_name_is_wrapped_if_no_column_would_fit_beside_it() -> None:
    name = " ".join(f"setting{i}=value{i}" for i in range(6))
    columns = [Column("encoding", align="left"), Column("seeds"), Column("64"), Column("128")]
    table = Table("", columns, [[name, 3, "112.15 ±3.83", "96.03 ±1.10"]], key_columns=2)
    text = printed(table, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert all(word in text for word in (*name.split(), "112.15 ±3.83", "96.03 ±1.10"))


def test_the_terminal_shows_markup_as_text_and_marks_the_best() -> None:
    text = printed(TABLE, 200)
    assert HOSTILE in text and "*34.6 ppl" in text
    assert text.splitlines()[0].rstrip() == TABLE.title
    markup = "[bold]x[/bold]"
    table = Table(markup, [Column(markup)], [[Cell(markup, details=[markup])]], [markup])
    assert printed(table, 200).count(markup) == 5


def test_a_piece_has_only_rows_with_values_in_it() -> None:
    columns = [Column("encoding", align="left"), *(Column(str(64 * 2**i)) for i in range(10))]
    rows = [["alibi", *range(10)], ["published", 7, *[None] * 9]]
    text = printed(Table("", columns, rows), 40)
    assert text.count("alibi") > text.count("published") == 1
    assert printed(Table("", columns, [["nothing", *[None] * 10]]), 200).count("nothing") == 1
