"""The hash of a user's class covers the code that it uses, and nothing else of its module."""

import importlib
import linecache
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from posenc.config import user_sources
from posenc.config.user_sources import source_hashes

MINE = """
import math
import own_helpers.scales as scales
import own_namespace.rates as rates
import torch
from contextlib import nullcontext
from functools import lru_cache, partial, singledispatch
from own_helpers import double
from own_helpers.scales import WEIGHTS
from torch import nn

SLOPE = 0.5
NAMES = {"a", "b", "c"}
UNUSED = 1

def slope():
    return math.sqrt(SLOPE)

TABLE = torch.tensor([1.0, 2.0])
CACHE = {}
STEPS = []
for step in range(2):
    STEPS.append(step + 30)
FORMULAS = {}

def register(name):
    def add(function):
        FORMULAS[name] = function
        return function
    return add

@register("linear")
def linear(x):
    return 31 * x

class Registry(dict):
    def register(self, function):
        self[function.__name__] = function
        return function

POWERS = Registry()

def doubled(function):
    def wrapper(x):
        return 2 * function(x)
    return wrapper

@doubled
def decorated(x):
    return 35 * x

@singledispatch
def dispatched(x):
    return x

@dispatched.register
def _(x: int):
    return 37 * x

@dispatched.register
def _(x: float):
    return 38 * x

SECOND = True
if not SECOND:
    class Chosen:
        value = 40
else:
    class Chosen:
        value = 41

with nullcontext(torch.tensor([42.0])) as OFFSET:
    ...

@POWERS.register
def cube(x):
    return x ** 33
first = lambda x: x + 1
second = lambda x: x + 20

@lru_cache
def cached(x):
    return 300 * x

def multiply(x, factor):
    return x * factor

by_four = partial(multiply, factor=4)
REGISTRY = {"square": lambda x: x ** 2}

def make(factor):
    def closure(x):
        return x * factor
    return closure

closure = make(5.5)

class Settings:
    def __init__(self, offset):
        self.offset = offset

SETTINGS = Settings(6.5)

class Base(nn.Module):
    rate = 3

class Other:
    pass

class Mine(Base):
    def bias(self, x, names=NAMES):
        from own_helpers.scales import SHIFTS
        import own_local
        CACHE[len(CACHE)] = TABLE
        x = slope() * double(x) * scales.FACTOR * rates.RATE
        x = cached(by_four(second(first(x)))) + closure(x) + REGISTRY["square"](x)
        x = FORMULAS["linear"](x) + POWERS["cube"](x) + STEPS[1]
        x = decorated(x) + dispatched(x) + Chosen.value + OFFSET
        return x + SETTINGS.offset + TABLE.sum() + WEIGHTS.sum() + SHIFTS.sum() + own_local.one(x)
"""
HELPERS = "def double(x):\n    return 2 * x\n"
SCALES = """
import torch
FACTOR = 7
WEIGHTS = torch.ones(9)
SHIFTS = torch.ones(10)
"""
LOCAL = "def one(x):\n    return x + 11\n"
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
        (tmp_path / "own_local.py").write_text(LOCAL.replace(old, new))
        (namespace / "rates.py").write_text(RATES.replace(old, new))
        linecache.clearcache()
        names = ("own_mine", "own_helpers", "own_helpers.scales", "own_namespace")
        for name in (*names, "own_namespace.rates", "own_local"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return source_hashes(importlib.import_module("own_mine").Mine)

    return compute


def test_the_hashes_name_the_code_that_the_class_uses(hashes: Hashes) -> None:
    names = "Mine Base slope SLOPE NAMES TABLE CACHE first second cached multiply by_four REGISTRY"
    names += " make closure Settings SETTINGS WEIGHTS STEPS FORMULAS linear Registry POWERS cube"
    names += " register step doubled decorated dispatched _ Chosen SECOND OFFSET"
    own = {f"own_mine.{name}" for name in names.split()}
    helpers = {"own_helpers.double", "own_namespace.rates.RATE", "own_local.one"}
    helpers |= {f"own_helpers.scales.{name}" for name in ("FACTOR", "WEIGHTS", "SHIFTS")}
    assert set(hashes()) == own | helpers


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = slope()", "x = 2 * slope()"),
        ("SLOPE = 0.5", "SLOPE = 0.25"),
        ("math.sqrt", "math.exp"),
        ("rate = 3", "rate = 4"),
        ('"c"', '"d"'),
        ("2 * x", "3 * x"),
        ("FACTOR = 7", "FACTOR = 8"),
        ("RATE = 5", "RATE = 6"),
        ("[1.0, 2.0]", "[1.0, 3.0]"),
        ("x + 1\n", "x + 2\n"),
        ("x + 20", "x + 30"),
        ("300 * x", "400 * x"),
        ("factor=4", "factor=5"),
        ("x ** 2", "x ** 3"),
        ("return x * factor", "return x / factor"),
        ("make(5.5)", "make(7.5)"),
        ("self.offset = offset", "self.offset = -offset"),
        ("Settings(6.5)", "Settings(8.5)"),
        ("ones(9)", "ones(8)"),
        ("ones(10)", "ones(12)"),
        ("x + 11", "x + 12"),
        ("step + 30", "step + 32"),
        ("range(2)", "range(3)"),
        ("31 * x", "32 * x"),
        ("x ** 33", "x ** 34"),
        ("2 * function(x)", "3 * function(x)"),
        ("35 * x", "36 * x"),
        ("37 * x", "39 * x"),
        ("38 * x", "39 * x"),
        ("value = 41", "value = 42"),
        ("SECOND = True", "SECOND = False"),
        ("[42.0]", "[43.0]"),
    ],
)
def test_an_edit_of_code_that_the_class_uses_changes_the_hashes(
    old: str, new: str, hashes: Hashes
) -> None:
    assert hashes() != hashes(old, new)


def test_calls_do_not_change_the_hashes(hashes: Hashes) -> None:
    before = hashes()
    definition = sys.modules["own_mine"].Mine
    definition().bias(torch.ones(2))
    user_sources._hashes.cache_clear()
    assert source_hashes(definition) == before


@pytest.mark.parametrize(("old", "new"), [("UNUSED = 1", "UNUSED = 2"), ("    pass", "    x = 1")])
def test_an_edit_of_other_code_in_the_module_keeps_the_hashes(
    old: str, new: str, hashes: Hashes
) -> None:
    assert hashes() == hashes(old, new)
