"""`posenc inspect encoding=...` end to end: tables, files, page, mirror, mistakes, docs."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb

from posenc.cli import main
from posenc.cli.arguments import parse
from posenc.cli.inspect_encoding import subjects_of
from posenc.inspect.encoding.matrix import ideals, matrix, measure
from posenc.inspect.formats import to_markdown

SMALL = ["model.width=32", "model.heads=4", "train_length=16"]
TABLES = Path(__file__).parents[2] / "docs" / "properties"
Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Told:
    """Exit code, output and errors of an inspection."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["inspect", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_one_encoding_has_a_card_and_its_files(told: Told, tmp_path: Path) -> None:
    code, printed, _ = told("encoding=alibi", *SMALL, "name=mine")
    assert code == 0 and printed.endswith("outputs/mine/inspect/index.html\n")
    assert "narrowest window" in printed and "Five ideal properties" in printed
    folder = tmp_path / "outputs" / "mine" / "inspect"
    rows = list(csv.DictReader((folder / "cards.csv").read_text().splitlines()))
    largest = next(row for row in rows if row["property"] == "largest to L")
    assert float(largest["value"]) == 0.25 * 15  # the steepest of four slopes
    drawn = {file.stem for file in folder.glob("*.png")}
    assert drawn == {file.stem for file in folder.glob("*.svg")}
    assert {"frequencies", "biases", "expected", "planes"} <= drawn
    assert "wavelengths" not in drawn  # alibi has no frequencies
    assert (folder / "matrix.md").read_text().startswith("| encoding | size |")
    page = (folder / "index.html").read_text()
    ids = re.findall(r'<(?:section|figure) id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 10
    assert "Card of alibi" in page and "posenc inspect encoding=alibi" in page


@pytest.mark.slow
def test_several_are_mirrored_side_by_side_and_replace_what_was_there(
    told: Told, tmp_path: Path
) -> None:
    folder = tmp_path / "outputs" / "scratch" / "inspect"
    folder.mkdir(parents=True)
    (folder / "buckets.png").write_text("of another inspection")
    code, printed, _ = told("encoding=nope,rope", *SMALL, "logger=wandb")
    assert code == 0 and "Encodings by properties" in printed
    assert not (folder / "buckets.png").exists() and (folder / "wavelengths.png").exists()
    rows = list(csv.DictReader((folder / "ideal.csv").read_text().splitlines()))
    assert [row["encoding"] for row in rows] == ["nope", "rope"]
    (fragment,) = (folder.parent / "wandb").glob("offline-run-*-scratch.inspect")
    media = {file.name.split("_")[0] for file in fragment.glob("files/media/*/*/*")}
    assert {"matrix", "cards", "wavelengths"} <= media
    assert wandb.run is None


def test_knobs_are_compared_under_their_names() -> None:
    found = subjects_of(parse("inspect", ["encoding=rope", "encoding.spectrum.base=1e4,5e5"]))
    assert [subject.label for subject in found] == [
        "rope spectrum.base=10000",
        "rope spectrum.base=500000",
    ]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["encoding=all", "run=PATH"]),
        (["encoding=rop"], ["encoding=rop", "nearest: rope"]),
        (["encoding=rope", "encoding.bas=3"], ["encoding.bas"]),
        (["encoding=rope", "train_length=0"], ["train_length=0", "above 0"]),
        (["encoding=rope", "model.heads=3"], ["heads=3", "width=128"]),
        (["encoding=rope", "name=a,b"], ["name", "single value"]),
        (["encoding=rope", "tokens=3"], ["tokens"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_mistake_gets_one_message(
    told: Told, tmp_path: Path, words: list[str], parts: list[str]
) -> None:
    code, _, error = told(*words)
    assert code == 2 and "Traceback" not in error
    assert all(part in error for part in parts), error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_docs_have_the_matrix_that_the_command_writes() -> None:
    found = {
        subject.label: measure(subject)
        for subject in subjects_of(parse("inspect", ["encoding=all"]))
    }
    for table in (ideals(found), matrix(found)):
        alike((TABLES / f"{table.file}.md").read_text().strip(), to_markdown(table).strip())


def alike(there: str, made: str) -> None:
    """The same words, and the same numbers but for the third digit, which machines round."""
    number = r"(?<![\w.])-?\d[\d.]*(?:e[+-]\d+)?"
    assert re.sub(number, "#", there) == re.sub(number, "#", made)
    numbers: list[Any] = [[float(n) for n in re.findall(number, text)] for text in (there, made)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=2e-3)
