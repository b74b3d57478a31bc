"""The main tables in every format, compared with means computed here from the run files."""

import csv
import io
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from consoles import printed
from posenc.report.scale import format_number
from posenc.report.write_report import write_report

Numbers = dict[tuple[int, str, int], str]  # training length, encoding, length -> perplexity


def expected(folder: Path) -> Numbers:
    losses: defaultdict[tuple[int, str, int], list[float]] = defaultdict(list)
    for file in folder.glob("*/evaluation.json"):
        match = re.match(r"(\w+)-L(\d+)-", file.parent.name)
        assert match
        for row in json.loads(file.read_text())["rows"]:
            if row["protocol"] == "nonoverlapping":
                losses[int(match[2]), match[1], row["length"]].append(row["loss"])
    return {key: f"{math.exp(sum(values) / len(values)):.2f}" for key, values in losses.items()}


def in_csv(text: str) -> Numbers:
    numbers: Numbers = {}
    for row in csv.DictReader(io.StringIO(text)):
        for name, value in row.items():
            if name.isdigit() and value != "-":
                numbers[int(row["train_length"]), row["encoding"], int(name)] = value
    return numbers


def in_markdown(text: str) -> Numbers:
    numbers: Numbers = {}
    for train_length, grid in re.findall(r"L = (\d+):.*\n\n((?:\|.*\n)+)", text):
        header, _, *rows = [line.strip("|").split("|") for line in grid.splitlines()]
        for row in rows:
            for name, cell in zip(header, row, strict=True):
                length, value = name.split()[0], cell.strip(" *")
                if length.isdigit() and value != "-":
                    numbers[int(train_length), row[0].strip(), int(length)] = value
    return numbers


def in_latex(text: str) -> Numbers:
    numbers: Numbers = {}
    tables = re.findall(r"\\toprule\n(.*?)\\bottomrule.*?L = (\d+):", text, re.S)
    for body, train_length in tables:
        lines = [line.removesuffix(" \\\\") for line in body.splitlines() if " & " in line]
        header, *rows = [line.split(" & ") for line in lines]
        for row in rows:
            for name, cell in zip(header, row, strict=True):
                length, value = name.split()[0], cell.removeprefix("\\textbf{").removesuffix("}")
                if length.isdigit() and value != "-":
                    numbers[int(train_length), row[0], int(length)] = value
    return numbers


def in_terminal(text: str) -> Numbers:
    """The line after the title has the lengths; the rows are between the rule and the notes."""
    numbers: Numbers = {}
    tables = re.findall(
        r"L = (\d+): [^\n]*\n([^\n]*)\n[^\n]*\n─+\s*\n(.*?)\nPerplexity", text, re.S
    )
    for train_length, lengths, rows in tables:
        for row in rows.splitlines():
            encoding, _, *cells, _ = row.split()
            for length, cell in zip(lengths.split(), cells, strict=False):
                if length.isdigit():
                    numbers[int(train_length), encoding, int(length)] = cell.strip("*")
    return {key: value for key, value in numbers.items() if value != "-"}


def in_page(page: Any) -> Numbers:
    numbers: Numbers = {}
    for table in page.tables:
        if train_length := re.search(r"L = (\d+)", table.caption):
            header, *rows = [[cell.text for cell in row] for row in table.rows]
            for row in rows:
                for name, cell in zip(header, row, strict=True):
                    if name.isdigit() and cell != "-":
                        numbers[int(train_length[1]), row[0], int(name)] = cell
    return numbers


def test_every_format_has_the_perplexities_in_the_run_files(
    trial_report: SimpleNamespace, read_html: Any
) -> None:
    numbers = expected(trial_report.folder)
    assert len(numbers) == 4 * 5 + 3 * 4
    assert in_csv((trial_report.folder / "report/extrapolation.csv").read_text()) == numbers
    assert in_markdown((trial_report.folder / "report/extrapolation.md").read_text()) == numbers
    assert in_latex((trial_report.folder / "report/extrapolation.tex").read_text()) == numbers
    assert in_terminal(trial_report.printed) == numbers
    assert in_page(read_html(trial_report.index.read_text())) == numbers


def test_the_lowest_value_of_each_column_is_marked(trial_report: SimpleNamespace) -> None:
    numbers = expected(trial_report.folder)
    markdown = (trial_report.folder / "report/extrapolation.md").read_text()
    columns = {(train_length, length) for train_length, _, length in numbers}
    lowest = sorted(
        min((value for key, value in numbers.items() if (key[0], key[2]) == column), key=float)
        for column in columns
    )
    assert sorted(re.findall(r"\| \*\*([\d.]+)\*\*", markdown)) == lowest
    assert sorted(re.findall(r" \*([\d.]+) ", trial_report.printed)) == lowest


def test_the_ratio_compares_the_longest_length_with_the_training_length(
    trial_report: SimpleNamespace,
) -> None:
    text = (trial_report.folder / "report/extrapolation.csv").read_text()
    rows = csv.DictReader(io.StringIO(text))
    ratios = {
        (row["encoding"], row["train_length"]): row["longest_over_train_length"] for row in rows
    }
    # sinusoidal: 4 doublings of 0.3 nats from 64 to 1024, 3 of them from 128
    assert ratios["sinusoidal", "64"] == f"{math.exp(1.2):.2f}"
    assert ratios["sinusoidal", "128"] == f"{math.exp(0.9):.2f}"


def test_a_ratio_covers_the_seeds_at_both_lengths_and_a_note_lists_fewer_seeds(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for seed, loss in ((1, 4.0), (2, 3.0)):
        rows = [fabricate.row(64, loss)]
        rows += [fabricate.row(128, loss + 0.5)] if seed == 2 else []
        fabricate.run(tmp_path / "gap", fabricate.config("alibi", 64, seed), rows)
    write_report(tmp_path / "gap", console)
    text = (tmp_path / "gap/report/extrapolation.csv").read_text()
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["longest_over_train_length"] == f"{math.exp(0.5):.2f}"
    note = "Not averaged over all seeds: alibi at 128 tokens (seed 2)."
    assert (
        note in printed(console) and note in (tmp_path / "gap/report/extrapolation.md").read_text()
    )


def test_a_note_lists_seeds_that_only_the_non_overlapping_rows_lack(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for seed in (1, 2):
        rows = [fabricate.row(64, 3.0)] + ([fabricate.row(128, 3.0)] if seed == 2 else [])
        fixed = {"protocol": "fixed_target", "stride": 16, "longest": 128}
        rows += [fabricate.row(length, 3.0, **fixed) for length in (64, 128)]
        fabricate.run(tmp_path / "gap", fabricate.config("alibi", 64, seed), rows)
    write_report(tmp_path / "gap", console)
    text = (tmp_path / "gap/report/extrapolation.md").read_text()
    assert "alibi, fixed targets" in text
    assert "Not averaged over all seeds: alibi at 128 tokens (seed 2)." in text


def test_headings_give_lengths_relative_to_the_training_length(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    config = fabricate.config("alibi", 512, 1)
    rows = [fabricate.row(length, 3.0) for length in (512, 522, 1024)]
    fabricate.run(tmp_path / "extra", config, rows)
    write_report(tmp_path / "extra", console)
    markdown = (tmp_path / "extra/report/extrapolation.md").read_text()
    assert "| 512 (L) | 522 (L+10) | 1024 (L+512) | L+512 / L |" in markdown


def test_tables_describe_the_spectra_in_their_labels(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for spectrum in ("geometric", "geometric_d1"):
        config = fabricate.config("rope", 64, 1, encoding={"spectrum": {"base": len(spectrum)}})
        config["choices"] = config["choices"] | {"encoding/spectrum": spectrum}
        fabricate.run(tmp_path / "spectra", config, [fabricate.row(64, 3.0)])
    index = write_report(tmp_path / "spectra", console)
    assert "spectrum=geometric_d1: base^(-i/(width-1))" in index.read_text()
    assert "geometric_d1: base^" in (tmp_path / "spectra/report/extrapolation.md").read_text()


def test_a_missing_value_is_a_dash_and_so_is_its_ratio(
    tmp_path: Path, fabricate: SimpleNamespace, console: Console
) -> None:
    for encoding, lengths in (("alibi", (64, 128)), ("learned", (64,))):
        rows = [fabricate.row(length, 3.0) for length in lengths]
        fabricate.run(tmp_path / "gap", fabricate.config(encoding, 64, 1), rows)
    write_report(tmp_path / "gap", console)
    markdown = (tmp_path / "gap/report/extrapolation.md").read_text()
    assert "| learned | 1 | **20.09** | - | - |" in markdown


def test_every_corpus_and_split_has_its_own_rows(
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
    lines = [(row["data"], row["split"], row["64"]) for row in csv.DictReader(io.StringIO(text))]
    assert lines == [
        ("python_stdlib", "validation", "20.09"),
        ("python_stdlib", "test", "148.41"),
        ("aaa_books", "validation", "54.60"),
    ]


def test_a_narrow_terminal_gets_the_table_in_pieces(folder: Path) -> None:
    narrow = Console(file=io.StringIO(), width=60)
    write_report(folder, narrow, full=True)
    text = printed(narrow)
    assert len(re.findall(r"^─+", text, re.M)) > 2
    assert max(map(len, text.splitlines()[:-1])) <= 60  # the last line is the path, never wrapped
    for (_, _, length), value in expected(folder).items():
        assert value in text, length


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.14159, "3.14"), (999.994, "999.99"), (12345.6, "12346"), (2.5e7, "2.50e+07")],
)  # fmt: skip
def test_the_precision_of_a_number_depends_on_its_magnitude(value: float, text: str) -> None:
    assert format_number(value) == text
