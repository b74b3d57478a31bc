"""`posenc.results` returns every evaluation row of an experiment."""

import shutil
from pathlib import Path

import pytest

import posenc
from posenc.runs.evaluation_rows import merge_rows
from posenc.runs.run_directory import RunDirectory


def test_every_row_of_every_run_is_in_the_frame(trained_runs: dict[str, RunDirectory]) -> None:
    frame = posenc.results(trained_runs["rope"].path.parent)
    rows = [(run.name, row) for run in trained_runs.values() for row in run.rows()]
    assert len(frame) == len(rows)
    records = frame.to_dict("records")
    for (name, row), record in zip(rows, records, strict=True):
        assert {key: record[key] for key in ("run", "length", "loss")} == {
            "run": name,
            "length": row["length"],
            "loss": row["loss"],
        }
        assert (record["train_length"], record["seed"], record["training_tokens"]) == (24, 1, 7680)
    assert set(frame.encoding) == {"rope", "learned"}
    assert frame.comparable.all()


def test_rows_with_another_budget_are_in_the_frame_but_not_comparable(
    trained_runs: dict[str, RunDirectory], tmp_path: Path
) -> None:
    for run in trained_runs.values():
        shutil.copytree(run.path, tmp_path / run.name)
    run = RunDirectory(tmp_path / trained_runs["rope"].name)
    run.blocks_file.unlink(missing_ok=True)
    row = max(run.rows(), key=lambda row: row["count"])  # covers the whole text
    smaller = {key: value for key, value in row.items() if not key.startswith("perplexity_per")}
    smaller |= {"count": 24, "budget_tokens": 24, "sum": row["loss"] * 24}
    merge_rows(run.evaluation_file, [smaller], run.config().planned.hash)
    frame = posenc.results(tmp_path)
    assert len(frame) == len(posenc.results(trained_runs["rope"].path.parent)) + 1
    assert list(frame.comparable[frame["count"] == 24]) == [False]
    assert frame.comparable[frame["count"] == row["count"]].all()


def test_a_bare_name_is_looked_up_in_outputs(
    trained_runs: dict[str, RunDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained_runs["rope"]
    monkeypatch.chdir(run.path.parents[2])
    assert len(posenc.results("trial")) == len(posenc.results("outputs/trial"))
    assert posenc.load("rope-L24").name == run.name


def test_a_corrupt_run_is_skipped_with_a_warning(
    trained_runs: dict[str, RunDirectory],
) -> None:
    folder = trained_runs["rope"].path.parent
    corrupt = folder / "corrupt"
    corrupt.mkdir()
    (corrupt / "config.yaml").write_text("seed: [")
    try:
        with pytest.warns(UserWarning, match="corrupt was skipped"):
            frame = posenc.results(folder)
    finally:
        (corrupt / "config.yaml").unlink()
        corrupt.rmdir()
    assert set(frame.encoding) == {"rope", "learned"}


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(posenc.ConfigError, match="contains no runs"):
        posenc.results(tmp_path)
