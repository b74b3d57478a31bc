"""Modules whose files are edited after Python has imported them, as next to a notebook."""

import importlib
import os
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from posenc.config.edited_modules import check_unedited
from posenc.config.errors import ConfigError
from posenc.config.user_sources import source_hash

SOURCE = """
from dataclasses import dataclass

RATE = 3

@dataclass
class Options:
    rate: float = 0.5

class Mine:
    rate = 2

    @property
    def doubled(self):
        return [2 * rate for rate in (self.rate, RATE)]

    class Inner:
        def square(self, x):
            return x**2

    def bias(self, distance):
        return 0.05 * distance
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "edited_mine", raising=False)
    path = tmp_path / "edited_mine.py"
    write(path, SOURCE)
    return path


def write(path: Path, source: str) -> None:
    path.write_text(source)
    os.utime(path, (later := time.time() + 1, later))  # after posenc was imported


def imported() -> ModuleType:
    importlib.invalidate_caches()
    return importlib.import_module("edited_mine")


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    ("old", "new"), [("0.05", "1.0"), ("2 * rate", "3 * rate"), ("**2", "**3")]
)
def test_an_edit_of_a_function_is_an_error_that_names_the_file(
    file: Path, is_known: bool, old: str, new: str
) -> None:
    imported()
    if is_known:
        source_hash("edited_mine.Mine")
    write(file, SOURCE.replace(old, new))
    with pytest.raises(ConfigError, match=r"edited_mine\.py has been edited.*restart Python"):
        source_hash("edited_mine.Mine")


def test_an_edit_of_a_value_is_an_error_if_the_module_was_used_before(file: Path) -> None:
    imported()
    source_hash("edited_mine.Mine")
    write(file, SOURCE.replace("rate = 2", "rate = 4"))
    with pytest.raises(ConfigError, match="has been edited"):
        source_hash("edited_mine.Mine")


def test_a_reloaded_module_is_used(file: Path) -> None:
    module = imported()
    before = source_hash("edited_mine.Mine")
    write(file, SOURCE.replace("0.05", "1.0"))
    importlib.reload(module)
    assert source_hash("edited_mine.Mine") != before
    assert not check_unedited(["edited_mine"])


def test_code_that_is_added_below_does_not_count_as_an_edit_of_functions(file: Path) -> None:
    imported()
    write(file, f"{SOURCE}\n\ndef unused():\n    pass\n")
    source_hash("edited_mine.Mine")


def test_modules_without_a_file_are_not_checked() -> None:
    assert not check_unedited(["builtins", "no_such_module"])
