"""`posenc inspect encoding=...` end to end: tables, files, page, W&B, errors, docs."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb

from posenc.cli import main
from posenc.cli.arguments import parse
from posenc.cli.inspect import inspected_encodings
from posenc.inspect.encoding.encoding_page import ideal_table, matrix_table, measure
from posenc.report.page import GENERATOR

SMALL = ["model.width=32", "model.heads=4", "train_length=16"]
TABLES = Path(__file__).parents[2] / "docs" / "properties"
Inspect = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Inspect:
    """Runs an inspection and returns its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides: str) -> tuple[int, str, str]:
        code = main(["inspect", *overrides])
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


@pytest.mark.slow
def test_spectra_in_labels_are_described(inspect: Inspect) -> None:
    spectra = "encoding/spectrum=geometric,geometric_d1"
    _, printed, _ = inspect("encoding=rope", spectra, *SMALL)
    assert "spectrum=geometric_d1: base^(-i/(width-1))" in " ".join(printed.split())


def test_inspecting_one_encoding_writes_tables_a_page_and_figures(
    inspect: Inspect, tmp_path: Path
) -> None:
    code, printed, _ = inspect("encoding=alibi", *SMALL, "name=mine")
    assert code == 0 and printed.endswith("outputs/mine/inspect/index.html\n")
    assert "narrowest window" in printed and "Five properties of an ideal encoding" in printed
    folder = tmp_path / "outputs" / "mine" / "inspect"
    rows = list(csv.DictReader((folder / "properties.csv").read_text().splitlines()))
    largest = next(row for row in rows if row["property"] == "max within L")
    assert float(largest["value"]) == 0.25 * 15  # the steepest of four slopes
    drawn = {file.stem for file in folder.glob("*.png")}
    assert drawn == {file.stem for file in folder.glob("*.svg")}
    assert {"frequencies", "biases", "expected_scores", "scores_2d"} <= drawn
    assert "wavelengths" not in drawn  # alibi has no frequencies
    assert "\n| encoding | RMS |" in (folder / "matrix.md").read_text()
    page = (folder / "index.html").read_text()
    ids = re.findall(r'<(?:section|figure) id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 10
    assert "Properties of alibi" in page and "posenc inspect encoding=alibi" in page
    finding = "tokens would receive 90% of the attention in the shortest-range head of alibi."
    assert page.index(finding) < page.index("<section")


@pytest.mark.slow
def test_several_encodings_are_compared_and_logged_and_replace_earlier_files(
    inspect: Inspect, tmp_path: Path
) -> None:
    folder = tmp_path / "outputs" / "scratch" / "inspect"
    folder.mkdir(parents=True)
    (folder / "buckets.png").write_text("from another inspection")
    (folder / "my_notes.csv").write_text("of the user")
    (folder / "index.html").write_text(f'{GENERATOR}<a href="buckets.png">buckets</a>')
    code, printed, _ = inspect("encoding=nope,rope", *SMALL, "logger=wandb")
    assert code == 0 and "Properties by encoding" in printed
    assert not (folder / "buckets.png").exists() and (folder / "wavelengths.png").exists()
    assert (folder / "my_notes.csv").read_text() == "of the user"
    rows = list(csv.DictReader((folder / "ideal.csv").read_text().splitlines()))
    assert [row["encoding"] for row in rows] == ["nope", "rope"]
    (offline_run,) = (folder.parent / "wandb").glob("offline-run-*-scratch.inspect")
    media = {file.name.split("_")[0] for file in offline_run.glob("files/media/*/*/*")}
    assert {"matrix", "properties", "wavelengths"} <= media
    assert wandb.run is None


def test_labels_have_the_overrides_that_differ() -> None:
    encodings = inspected_encodings(
        parse("inspect", ["encoding=rope", "encoding.spectrum.base=1e4,5e5"])
    )
    assert [inspected.label for inspected in encodings] == [
        "rope spectrum.base=10000",
        "rope spectrum.base=500000",
    ]


def test_two_training_lengths_are_two_rows() -> None:
    encodings = inspected_encodings(parse("inspect", ["encoding=rope", "train_length=64,128"]))
    labels = [inspected.label for inspected in encodings]
    assert labels == ["rope train_length=64", "rope train_length=128"]


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ([], ["encoding=all", "run=PATH"]),
        (["encoding=rop"], ["encoding=rop", "did you mean rope"]),
        (["~encoding"], ["~encoding", "set encoding=NAME"]),
        (["encoding=rope", "encoding.bas=3"], ["encoding.bas"]),
        (["encoding=rope", "train_length=0"], ["train_length=0"]),
        (["encoding=learned", "train_length=1"], ["train_length=1 must be at least 2"]),
        (["encoding=rope", "model.heads=3"], ["heads=3", "width=128"]),
        (["encoding=rope", "name=a,b"], ["name", "single value"]),
        (["encoding=rope", "tokens=3"], ["tokens"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_an_invalid_command_gives_one_message(
    inspect: Inspect, tmp_path: Path, overrides: list[str], parts: list[str]
) -> None:
    code, _, error = inspect(*overrides)
    assert code == 2 and "Traceback" not in error
    assert error.count("posenc inspect: ") == 1
    assert all(part in error for part in parts), error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_docs_have_the_tables_that_the_command_writes() -> None:
    encodings = inspected_encodings(parse("inspect", ["encoding=all"]))
    results = {inspected.label: measure(inspected) for inspected in encodings}
    for table in (ideal_table(results), matrix_table(results)):
        documented = (TABLES / f"{table.file_stem}.md").read_text()
        assert_same_table(documented, table.table.to_markdown())


def assert_same_table(documented: str, written: str) -> None:
    """Check that the tables agree; the third digit of a number may depend on the machine."""
    number = r"(?<![\w.])-?\d[\d.]*(?:e[+-]\d+)?"
    assert re.sub(number, "#", documented) == re.sub(number, "#", written)
    numbers: list[Any] = [
        [float(n) for n in re.findall(number, text)] for text in (documented, written)
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=2e-3)
