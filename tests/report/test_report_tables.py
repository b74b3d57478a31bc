"""The numbers of every form of the table, against means taken from the files by hand."""

import csv
import io
import json
import math
import re
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from posenc.report import write_report
from posenc.report.tables import number_text

Numbers = dict[tuple[int, str, int], str]  # training length, encoding, length -> perplexity


def expected(folder: Path) -> Numbers:
    losses: defaultdict[tuple[int, str, int], list[float]] = defaultdict(list)
    for file in folder.glob("*/evaluation.json"):
        encoding, train_length = re.match(r"(\w+)-L(\d+)-", file.parent.name).groups()  # type: ignore[union-attr]
        for row in json.loads(file.read_text())["rows"]:
            if row["protocol"] == "nonoverlapping":
                losses[int(train_length), encoding, row["length"]].append(row["loss"])
    return {key: f"{math.exp(sum(of) / len(of)):.2f}" for key, of in losses.items()}


def in_csv(text: str) -> Numbers:
    found: Numbers = {}
    for row in csv.DictReader(io.StringIO(text)):
        for name, value in row.items():
            if name.isdigit() and value != "-":
                found[int(row["train_length"]), row["encoding"], int(name)] = value
    return found


def in_markdown(text: str) -> Numbers:
    found: Numbers = {}
    for train_length, grid in re.findall(r"L = (\d+):.*\n\n((?:\|.*\n)+)", text):
        header, _, *rows = [line.strip("|").split("|") for line in grid.splitlines()]
        for row in rows:
            for name, cell in list(zip(header, row, strict=True))[2:-1]:
                value = cell.strip(" *")
                if value != "-":
                    found[int(train_length), row[0].strip(), int(name.split()[0])] = value
    return found


def in_terminal(text: str) -> Numbers:
    found: Numbers = {}
    for train_length, table in re.findall(r"L = (\d+): [^\n]*\n┏(.*?)└", text, re.DOTALL):
        lines = [re.split("[│┃]", line)[1:-1] for line in table.splitlines() if line[0] in "│┃"]
        for row in lines[2:]:
            for name, cell in list(zip(lines[0], row, strict=True))[2:-1]:
                if cell.strip() != "-":
                    found[int(train_length), row[0].strip(), int(name)] = cell.strip(" *")
    return found


class _Tables(HTMLParser):
    """Rows of every table of class `extrapolation`, each cell's text, under its caption."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table" and ("class", "extrapolation") in attrs:
            self.tables.append(("", []))
            self.inside = "table"
        elif self.inside and tag == "caption":
            self.inside = "caption"
        elif self.inside and tag == "tr":
            self.tables[-1][1].append([])
        elif self.inside and tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
            self.inside = "cell"
        elif self.inside and tag == "small":
            self.inside = "table"

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.inside = ""
        elif self.inside and tag in ("td", "th", "caption"):
            self.inside = "table"

    def handle_data(self, data: str) -> None:
        if self.inside == "cell":
            self.tables[-1][1][-1][-1] += data
        elif self.inside == "caption":
            self.tables[-1] = (data, self.tables[-1][1])


def in_page(text: str) -> Numbers:
    parser = _Tables()
    parser.feed(text)
    found: Numbers = {}
    for caption, (header, *rows) in parser.tables:
        train_length = int(re.search(r"L = (\d+)", caption).group(1))  # type: ignore[union-attr]
        for row in rows:
            for name, cell in list(zip(header, row, strict=True))[2:-1]:
                if cell != "-":
                    found[train_length, row[0], int(name)] = cell
    return found


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_form_has_the_same_numbers_as_the_files(reported: SimpleNamespace) -> None:
    oracle = expected(reported.folder)
    assert len(oracle) == 4 * 5 + 3 * 4
    assert in_csv((reported.folder / "report/extrapolation.csv").read_text()) == oracle
    assert in_markdown((reported.folder / "report/extrapolation.md").read_text()) == oracle
    assert in_terminal(reported.printed) == oracle
    assert in_page(reported.index.read_text()) == oracle


def test_the_lowest_of_each_column_is_marked(reported: SimpleNamespace) -> None:
    oracle = expected(reported.folder)
    markdown = (reported.folder / "report/extrapolation.md").read_text()
    columns = {(train_length, length) for train_length, _, length in oracle}
    lowest = [
        min((value for key, value in oracle.items() if (key[0], key[2]) == column), key=float)
        for column in columns
    ]
    assert sorted(re.findall(r"\| \*\*([\d.]+)\*\*", markdown)) == sorted(lowest)
    assert sorted(re.findall(r" \*([\d.]+) ", reported.printed)) == sorted(lowest)


def test_growth_is_the_longest_over_the_training_length(reported: SimpleNamespace) -> None:
    text = (reported.folder / "report/extrapolation.csv").read_text()
    rows = csv.DictReader(io.StringIO(text))
    growth = {(row["encoding"], row["train_length"]): row for row in rows}
    # sinusoidal: 4 doublings of 0.3 nats from 64 to 1024, 3 of them from 128
    assert growth["sinusoidal", "64"]["longest_over_train_length"] == f"{math.exp(1.2):.2f}"
    assert growth["sinusoidal", "128"]["longest_over_train_length"] == f"{math.exp(0.9):.2f}"


def test_lengths_are_told_by_the_training_length(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    config = fabricate.config("alibi", 512, 1)
    rows = [fabricate.row(length, 3.0) for length in (512, 522, 1024)]
    fabricate.run(tmp_path / "extra", config, rows)
    write_report(tmp_path / "extra", console)
    markdown = (tmp_path / "extra/report/extrapolation.md").read_text()
    assert "| 512 (L) | 522 (L+10) | 1024 (L+512) | L+512 / L |" in markdown


def test_a_missing_cell_is_a_dash_and_growth_with_it(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for encoding, lengths in (("alibi", (64, 128)), ("learned", (64,))):
        rows = [fabricate.row(length, 3.0) for length in lengths]
        fabricate.run(tmp_path / "gap", fabricate.config(encoding, 64, 1), rows)
    write_report(tmp_path / "gap", console)
    markdown = (tmp_path / "gap/report/extrapolation.md").read_text()
    assert "| learned | 1 | **20.09** | - | - |" in markdown


def test_other_data_stand_in_a_table_of_their_own(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    rows = [
        fabricate.row(64, 3.0),
        fabricate.row(64, 4.0, data="beef", data_name="aaa_books"),
        fabricate.row(64, 5.0, split="test"),
    ]
    fabricate.run(tmp_path / "both", fabricate.config("alibi", 64, 1), rows)
    write_report(tmp_path / "both", console)
    text = (tmp_path / "both/report/extrapolation.csv").read_text()
    found = [(row["data"], row["split"], row["64"]) for row in csv.DictReader(io.StringIO(text))]
    assert found == [
        ("python_stdlib", "test", "148.41"),
        ("python_stdlib", "validation", "20.09"),
        ("aaa_books", "validation", "54.60"),
    ]


def test_a_narrow_console_gets_the_table_in_pieces(folder: Path) -> None:
    narrow = Console(file=io.StringIO(), width=60)
    write_report(folder, narrow)
    text = printed(narrow)
    assert text.count("┏") > 2
    assert max(map(len, text.splitlines()[:-1])) <= 60  # the last line is the path, never cut
    for (_, _, length), value in expected(folder).items():
        assert value in text, length


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.14159, "3.14"), (999.994, "999.99"), (12345.6, "12346"), (2.5e7, "2.50e+07")],
)  # fmt: skip
def test_numbers_keep_the_digits_that_mean_something(value: float, text: str) -> None:
    assert number_text(value) == text
