"""The record of classes and functions that the user has trained with."""

import os
from pathlib import Path

import pytest

from posenc.runs.trusted_code import is_trusted, record_trusted

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
    assert not is_trusted("target", TARGET)
    record_trusted({"target": [TARGET]})
    assert is_trusted("target", TARGET) and not is_trusted("target", "json.loads")


def test_a_record_that_is_a_pipe_trusts_nothing_and_does_not_block(record: Path) -> None:
    os.mkfifo(record)
    assert not is_trusted("target", TARGET)


def test_without_a_home_directory_nothing_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    for state in ("", "state"):
        monkeypatch.setenv("XDG_STATE_HOME", state)
        record_trusted({"target": [TARGET]})
        assert not is_trusted("target", TARGET) and list(tmp_path.iterdir()) == []


def test_a_package_that_links_to_a_trusted_file_is_not_trusted(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = tmp_path / "mine" / "bias_package", tmp_path / "other" / "bias_package"
    for package in (mine, other):
        package.mkdir(parents=True)
        (package / "bias.py").touch()
    (mine / "__init__.py").touch()
    (other / "__init__.py").symlink_to(mine / "__init__.py")
    monkeypatch.chdir(mine.parent)
    record_trusted({"target": ["bias_package.bias.Bias"]})
    assert is_trusted("target", "bias_package.bias.Bias")
    monkeypatch.chdir(other.parent)
    assert not is_trusted("target", "bias_package.bias.Bias")
    link = tmp_path / "third" / "bias_package"
    link.parent.mkdir()
    link.symlink_to(mine)  # other modules next to it could be imported
    monkeypatch.chdir(link.parent)
    assert not is_trusted("target", "bias_package.bias.Bias")
