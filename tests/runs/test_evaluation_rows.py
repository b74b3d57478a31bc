"""Measurements are added to a run's files, where a repeated measurement replaces the old one."""

from pathlib import Path

import numpy as np
import pytest

from posenc.config.errors import RunError
from posenc.runs.evaluation_rows import merge_rows, read_rows, write_rows
from posenc.runs.loss_arrays import merge_arrays, read_arrays
from posenc.runs.run_directory import RunDirectory

ROW = {
    "data": "f",
    "split": "test",
    "protocol": "nonoverlapping",
    "length": 64,
    "stride": None,
    "swap": None,
}


def test_a_row_replaces_the_old_row_of_the_same_measurement(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    merge_rows(file, [{**ROW, "loss": 1.0}, {**ROW, "length": 128, "loss": 2.0}])
    merge_rows(file, [{**ROW, "loss": 1.5}])
    assert [(row["length"], row["loss"]) for row in read_rows(file)] == [(64, 1.5), (128, 2.0)]


def test_an_edited_row_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    merge_rows(file, [{**ROW, "accuracy": 0.5}])
    merge_rows(file, [{**ROW, "length": 128, "accuracy": 0.25}])
    file.write_text(file.read_text().replace('"length": 128', '"length": 256'))
    with pytest.raises(RunError, match="has been edited"):
        read_rows(file)


def test_rows_of_another_run_are_an_error(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    row = {"order": 2, "data": "f", "split": "test", "count": 2, "sum": 3.0, "loss": 1.5}
    write_rows(run.ngrams_file, [row], "f00d")
    assert run.ngrams("f00d") == [row]
    with pytest.raises(RunError, match="with hash f00d"):
        run.ngrams("beef")


def test_losses_by_position_are_added_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "loss_by_position.npz"
    merge_arrays(file, {"a.sum": np.ones(3), "a.count": np.arange(3)})
    merge_arrays(file, {"b.sum": np.zeros(2), "b.count": np.arange(2), "a.sum": np.full(3, 2.0)})
    arrays = read_arrays(file)
    assert sorted(arrays) == ["a.count", "a.sum", "b.count", "b.sum"]
    assert arrays["a.sum"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("kept", [0, 30, -30])
def test_a_truncated_file_of_arrays_is_an_error(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "loss_by_position.npz"
    merge_arrays(file, {"a.sum": np.ones(3), "a.count": np.arange(3)})
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(RunError, match="evaluate the run again"):
        read_arrays(file)
