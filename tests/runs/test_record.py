"""What lies on disk is whole, and survives whoever writes it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from posenc.runs.evaluation_rows import merge_positions, merge_rows, read_positions, read_rows
from posenc.runs.files import append_line, read_lines, truncate_lines, write_atomic, write_json
from posenc.runs.lock import is_locked, lock
from posenc.runs.run_directory import RunDirectory
from posenc.runs.status import Status

ROW = {
    "data": "f",
    "split": "test",
    "protocol": "nonoverlapping",
    "length": 64,
    "stride": None,
    "swap": None,
}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"x": 1})
    with pytest.raises(ValueError):
        write_json(file, {"x": float("nan")})
    assert json.loads(file.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append_line(file, {"step": 1})
    with file.open("a") as handle:
        handle.write('{"step": 2')
    assert read_lines(file) == [{"step": 1}]


def test_metrics_are_truncated_to_a_step(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    for step in range(1, 6):
        append_line(file, {"step": step, "loss": 0.1 + step})
    before = file.read_text().splitlines()
    truncate_lines(file, 3)
    assert file.read_text().splitlines() == before[:3]
    append_line(file, {"step": 4, "loss": 4.1})
    assert [row["step"] for row in read_lines(file)] == [1, 2, 3, 4]


def test_a_measured_row_replaces_itself(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    merge_rows(file, [{**ROW, "loss": 1.0}, {**ROW, "length": 128, "loss": 2.0}])
    merge_rows(file, [{**ROW, "loss": 1.5}])
    assert [(row["length"], row["loss"]) for row in read_rows(file)] == [(64, 1.5), (128, 2.0)]


def test_positions_are_added_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "loss_by_position.npz"
    merge_positions(file, {"a.sum": np.ones(3), "a.count": np.arange(3)})
    merge_positions(file, {"b.sum": np.zeros(2), "a.sum": np.full(3, 2.0)})
    found = read_positions(file)
    assert sorted(found) == ["a.count", "a.sum", "b.sum"]
    assert found["a.sum"].tolist() == [2.0, 2.0, 2.0]


HOLD = """
import sys, pathlib
from posenc.runs.lock import lock
with lock(pathlib.Path(sys.argv[1]), wait=False) as obtained:
    print(obtained, flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_free_again_when_its_owner_is_killed(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None and owner.stdout.readline() == "True\n"
        assert is_locked(file)
        with lock(file, wait=False) as obtained:
            assert not obtained
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert not is_locked(file)


def test_a_run_that_says_it_runs_but_does_not_was_cut_off(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    assert run.status().state == "pending"
    Status(state="running", step=5).write(run.status_file)
    assert run.status().state == "interrupted"
    with lock(run.lock_file, wait=False):
        assert run.status().state == "running"


def test_atomic_writes_make_their_folder_and_use_the_usual_permissions(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "file"
    write_atomic(file, "text")
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert file.stat().st_mode == plain.stat().st_mode
