"""The record of classes and functions that the user has trained with."""

import os
from pathlib import Path

import pytest

from posenc.runs.trusted_code import is_remembered, remember_targets

TARGET = "json.dumps"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "posenc").mkdir()
    return tmp_path / "posenc" / "trusted_targets.json"


@pytest.mark.parametrize(
    "text", ["", "3", "null", "[1]", '["a", null]', '[{"target": "a"}]', '{"a": {}}', "[" * 10**5]
)
def test_a_corrupt_record_trusts_nothing_and_is_replaced(record: Path, text: str) -> None:
    record.write_text(text)
    assert not is_remembered(TARGET)
    remember_targets([TARGET])
    assert is_remembered(TARGET) and not is_remembered("json.loads")


def test_a_record_that_is_a_pipe_is_not_waited_for(record: Path) -> None:
    os.mkfifo(record)
    assert not is_remembered(TARGET)


def test_without_a_home_directory_nothing_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for state in ("", "state"):
        monkeypatch.setenv("XDG_STATE_HOME", state)
        remember_targets([TARGET])
        assert not is_remembered(TARGET) and list(tmp_path.iterdir()) == []
