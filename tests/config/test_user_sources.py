"""The hash of a user's class covers the code that it uses, and nothing else of its module."""

import importlib
import linecache
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from posenc.config.user_sources import source_hashes

MINE = """
import math
import own_helpers.scales as scales
import own_namespace.rates as rates
from own_helpers import double
from torch import nn

SLOPE = 0.5
NAMES = {"a", "b", "c"}
UNUSED = 1

def slope():
    return math.sqrt(SLOPE)

class Base(nn.Module):
    rate = 3

class Other:
    pass

class Mine(Base):
    def bias(self, x, names=NAMES):
        return slope() * double(x) * scales.FACTOR * rates.RATE
"""
HELPERS = "def double(x):\n    return 2 * x\n"
SCALES = "FACTOR = 7\n"
RATES = "RATE = 5\n"
Hashes = Callable[..., Mapping[str, str]]


@pytest.fixture
def hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hashes:
    """Writes the modules with one replacement, and returns the hashes of the class Mine."""
    monkeypatch.syspath_prepend(tmp_path)
    # Python would reuse old bytecode after an edit of the same size within the same second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    package = tmp_path / "own_helpers"
    package.mkdir()
    namespace = tmp_path / "own_namespace"  # a package without __init__.py
    namespace.mkdir()

    def compute(old: str = "", new: str = "") -> Mapping[str, str]:
        (tmp_path / "own_mine.py").write_text(MINE.replace(old, new))
        (package / "__init__.py").write_text(HELPERS.replace(old, new))
        (package / "scales.py").write_text(SCALES.replace(old, new))
        (namespace / "rates.py").write_text(RATES.replace(old, new))
        linecache.clearcache()
        names = ("own_mine", "own_helpers", "own_helpers.scales", "own_namespace")
        for name in (*names, "own_namespace.rates"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return source_hashes(importlib.import_module("own_mine").Mine)

    return compute


def test_the_hashes_name_the_code_that_the_class_uses(hashes: Hashes) -> None:
    own = {f"own_mine.{name}" for name in ("Mine", "Base", "slope", "SLOPE", "NAMES")}
    helpers = {"own_helpers.double", "own_helpers.scales.FACTOR", "own_namespace.rates.RATE"}
    assert set(hashes()) == own | helpers


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return slope()", "return 2 * slope()"),
        ("SLOPE = 0.5", "SLOPE = 0.25"),
        ("math.sqrt", "math.exp"),
        ("rate = 3", "rate = 4"),
        ('"c"', '"d"'),
        ("2 * x", "3 * x"),
        ("FACTOR = 7", "FACTOR = 8"),
        ("RATE = 5", "RATE = 6"),
    ],
)
def test_an_edit_of_code_that_the_class_uses_changes_the_hashes(
    old: str, new: str, hashes: Hashes
) -> None:
    assert hashes() != hashes(old, new)


@pytest.mark.parametrize(("old", "new"), [("UNUSED = 1", "UNUSED = 2"), ("    pass", "    x = 1")])
def test_an_edit_of_other_code_in_the_module_keeps_the_hashes(
    old: str, new: str, hashes: Hashes
) -> None:
    assert hashes() == hashes(old, new)
