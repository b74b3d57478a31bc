"""Files that are written completely or not at all, and JSON lines."""

import errno
import json
import os
from pathlib import Path

import pytest

from posenc.config.errors import RunError
from posenc.runs.files import (
    append_jsonl,
    corrupt_file_error,
    open_for_append,
    read_json,
    read_jsonl,
    truncate_jsonl,
    write_atomic,
    write_json,
)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"x": 1})
    with pytest.raises(ValueError):
        write_json(file, {"x": float("nan")})
    assert json.loads(file.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_an_atomic_write_creates_folders_and_keeps_the_default_permissions(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "file"
    write_atomic(file, "text")
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert file.stat().st_mode == plain.stat().st_mode


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append_jsonl(file, {"step": 1})
    with file.open("a") as handle:
        handle.write('{"step": 2')
    assert read_jsonl(file) == [{"step": 1}]


def test_rows_after_a_step_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    for step in range(1, 6):
        append_jsonl(file, {"step": step, "loss": 0.1 + step})
    before = file.read_text().splitlines()
    truncate_jsonl(file, 3)
    assert file.read_text().splitlines() == before[:3]
    append_jsonl(file, {"step": 4, "loss": 4.1})
    assert [row["step"] for row in read_jsonl(file)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EACCES, "make it readable"), (errno.EIO, "check the disk")]
)
def test_a_file_that_cannot_be_read_is_not_called_corrupt(number: int, remedy: str) -> None:
    error = corrupt_file_error(Path("a.json"), OSError(number, "reason"))
    assert str(error) == f"a.json cannot be read (reason); {remedy}"


def test_strings_that_cannot_be_printed_are_corrupt(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(r'{"a": "\ud800", "b": "\ud83d\ude00"}')
    with pytest.raises(RunError, match=r"a\.json is corrupt"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(r'{"b": "\ud83d\ude00"}')
    assert read_json(tmp_path / "a.json") == {"b": "\U0001f600"}


def test_rows_are_not_appended_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "rows.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        append_jsonl(tmp_path / "rows.jsonl", {"step": 1})
    assert (tmp_path / "target").read_text() == ""


def test_a_pipe_is_not_appended_to(tmp_path: Path) -> None:
    """Opening it would wait for a reader."""
    os.mkfifo(tmp_path / "run.log")
    with pytest.raises(OSError, match=r"run\.log is not a regular file; delete it"):
        open_for_append(tmp_path / "run.log")
