"""The hash of a user's class covers the code that it uses, and nothing else of its module."""

import importlib
import linecache
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from posenc.config import user_sources
from posenc.config.errors import ConfigError
from posenc.config.user_sources import source_hash

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
from typing import TYPE_CHECKING

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

class Other(Base):
    pass

if __name__ == "__main__":
    print(Other())

if TYPE_CHECKING:
    Number = float

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
HELPERS = """
def double(x):
    return 2 * x

def triple(x):
    return 3 * x
"""
SCALES = """
import torch
FACTOR = 7
WEIGHTS = torch.ones(9)
SHIFTS = torch.ones(10)
"""
LOCAL = "def one(x):\n    return x + 11\n"
RATES = "RATE = 5\n"
Hash = Callable[..., str]


@pytest.fixture
def code_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hash:
    """Writes the modules with one replacement, and returns the hash of the class Mine."""
    monkeypatch.syspath_prepend(tmp_path)
    # Python would reuse old bytecode after an edit of the same size within the same second.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    package = tmp_path / "own_helpers"
    package.mkdir()
    namespace = tmp_path / "own_namespace"  # a package without __init__.py
    namespace.mkdir()

    def compute(old: str = "", new: str = "") -> str:
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
        importlib.import_module("own_mine")
        return source_hash("own_mine.Mine")

    return compute


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
def test_an_edit_of_code_that_the_class_uses_changes_the_hash(
    old: str, new: str, code_hash: Hash
) -> None:
    assert code_hash() != code_hash(old, new)


PATTERNS = {
    "a class decorator": """
        def rated(cls):
            class Rated(cls):
                rate = VALUE
            return Rated
        @rated
        class Mine:
            pass
    """,
    "a class made by a function": """
        def make(rate):
            class Made:
                def get(self):
                    return rate
            return Made
        Mine = make(VALUE)
    """,
    "a base class made by a function": """
        def make(rate):
            return type("Base", (), {"rate": rate})
        class Mine(make(VALUE)):
            pass
    """,
    "a method that is assigned": """
        class Mine:
            pass
        def get(self):
            return VALUE
        Mine.get = get
    """,
    "a method that setattr adds": """
        class Mine:
            pass
        setattr(Mine, "get", lambda self: VALUE)
    """,
    "an attribute of a function": """
        def rate():
            return rate.value
        rate.value = VALUE
        class Mine:
            get = rate
    """,
    "a registry filled by a call": """
        RATES = {}
        def register(name, value):
            RATES[name] = value
        register("a", VALUE)
        class Mine:
            rate = list(RATES.values())[0]
    """,
    "a registry filled by a call whose result is kept": """
        RATES = {}
        first = RATES.setdefault("a", VALUE)
        class Mine:
            rate = list(RATES.values())[0]
    """,
    "a registry filled by a decorator": """
        RATES = {}
        def register(function):
            RATES[function.__name__] = function
            return function
        @register
        def a():
            return VALUE
        class Mine:
            rate = list(RATES.values())[0]
    """,
    "subclasses that register themselves": """
        class Rate:
            known = {}
            def __init_subclass__(cls):
                Rate.known[cls.__name__] = cls
        class Slow(Rate):
            value = VALUE
        class Mine:
            rate = list(Rate.known.values())[0]
    """,
    "subclasses that are listed": """
        class Rate:
            pass
        class Slow(Rate):
            value = VALUE
        class Mine:
            rates = Rate.__subclasses__()
    """,
    "a tensor filled by a function": """
        import torch
        RATES = torch.zeros(1)
        def fill():
            RATES.fill_(VALUE)
        fill()
        class Mine:
            rate = RATES
    """,
    "a name in a string": """
        RATE = VALUE
        class Mine:
            def get(self):
                return globals()["RATE"]
    """,
    "a local name of a module": """
        import own_values
        class Mine:
            def get(self):
                module = own_values
                return module.RATE
    """,
    "a module imported by its name": """
        import importlib
        class Mine:
            def get(self):
                return importlib.import_module("own_values").RATE
    """,
    "a module imported for its effects": """
        import own_registry
        import own_effects
        class Mine:
            rate = list(own_registry.RATES.values())[0]
    """,
    "all names of a module": """
        from own_values import *
        @register
        def rate():
            return VALUE
        class Mine:
            rates = RATES
    """,
    "a metaclass that registers": """
        RATES = []
        class Registry(type):
            def __init__(cls, *arguments):
                RATES.append(cls)
        class Slow(metaclass=Registry):
            value = VALUE
        class Mine:
            rates = RATES
    """,
    "a change through another name": """
        RATES = [1]
        alias = RATES
        alias += [VALUE]
        class Mine:
            rates = RATES
    """,
    "a call of a library that changes an object": """
        import heapq
        RATES = []
        _ = heapq.heappush(RATES, VALUE)
        class Mine:
            rates = RATES
    """,
    "a default argument with an effect": """
        RATES = {}
        def unused(x=RATES.setdefault("a", VALUE)):
            pass
        class Mine:
            rates = RATES
    """,
    "a decorator named like a builtin": """
        RATES = []
        def filter(function):
            RATES.append(function)
        @filter
        def rate():
            return VALUE
        class Mine:
            rates = RATES
    """,
    "a decorator named like a library's": """
        RATES = []
        def cache(function):
            RATES.append(function)
        @cache
        def rate():
            return VALUE
        class Mine:
            rates = RATES
    """,
    "a fallback for a missing library": """
        try:
            from no_such_library import register
        except ImportError:
            RATES = []
            register = RATES.append
        @register
        def rate():
            return VALUE
        class Mine:
            rates = RATES
    """,
    "a block that is run": """
        from typing import TYPE_CHECKING
        if not TYPE_CHECKING:
            RATE = [VALUE]
        class Mine:
            rate = RATE
    """,
    "a name bound by match": """
        match (VALUE,):
            case (RATE,):
                pass
        class Mine:
            def get(self):
                return [RATE]
    """,
    "a computed name": """
        rate_a = [VALUE]
        class Mine:
            def get(self, kind):
                return globals()[f"rate_{kind}"]
    """,
    "a name in the settings": """
        from own_lookup import attribute
        import own_pattern
        class slow:
            rate = VALUE
        class Mine:
            def get(self, kind="slow"):
                return attribute(own_pattern, kind)
    """,
    "an attribute that another module reads": """
        from own_lookup import rate
        import own_values
        class Mine:
            def get(self):
                return rate(own_values)
    """,
    "a module imported by a constant": """
        from importlib import import_module
        NAME = "own_values"
        class Mine:
            def get(self):
                return import_module(NAME).RATE
    """,
    "modules of a package that are searched": """
        import pkgutil, importlib
        import own_plugins
        for found in pkgutil.iter_modules(own_plugins.__path__):
            importlib.import_module(f"own_plugins.{found.name}")
        class Mine:
            rates = own_plugins.RATES
    """,
    "the package around the module": """
        from own_plugins.user import Mine
    """,
    "functions that inspect lists": """
        import inspect
        import own_functions
        class Mine:
            def get(self):
                return [f() for _, f in inspect.getmembers(own_functions, inspect.isfunction)]
    """,
    "a function in the globals of another": """
        def outer():
            pass
        def rate_a():
            return VALUE
        class Mine:
            def get(self, kind):
                return outer.__globals__["rate_" + kind]()
    """,
    "a module with a name of the standard library": """
        from colorsys import rate
        class Mine:
            def get(self):
                return rate()
    """,
    "an attribute of a module that is computed": """
        import own_dynamic
        class Mine:
            def get(self):
                return own_dynamic.RATE
    """,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_code_that_is_used_indirectly_changes_the_hash(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sources = {
        "own_pattern": PATTERNS[pattern],
        "own_values": "RATE = VALUE",
        "own_functions": "def rate():\n    return VALUE",
        "own_registry": "RATES = {}",
        "own_effects": "import own_registry\nown_registry.RATES['a'] = VALUE",
        "own_lookup": """
            attribute = lambda module, name: vars(module)[name]
            def rate(module):
                return module.RATE
        """,
        "own_plugins.__init__": "RATES = {}",
        "own_plugins.slow": "import own_plugins\nown_plugins.RATES['slow'] = VALUE",
        "own_plugins.user": "class Mine: pass",
        "own_dynamic": "def __getattr__(name):\n    return VALUE",
    }
    if pattern == "a module with a name of the standard library":
        sources["colorsys"] = "def rate():\n    return VALUE"
    if pattern == "all names of a module":
        sources["own_values"] = "RATES = []\ndef register(f):\n    RATES.append(f)"
    if pattern == "the package around the module":
        sources["own_plugins.__init__"] = "import own_registry\nown_registry.RATES['a'] = VALUE"

    def compute(value: str) -> str:
        for module, source in sources.items():
            file = tmp_path / f"{module.replace('.', '/')}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(textwrap.dedent(source).replace("VALUE", value))
            module = module.removesuffix(".__init__")
            monkeypatch.delitem(sys.modules, module, raising=False)
        linecache.clearcache()
        importlib.invalidate_caches()
        importlib.import_module("own_pattern")
        return source_hash("own_pattern.Mine", ["slow"])

    assert compute("0.25") == compute("0.25") != compute("0.75")


@pytest.mark.parametrize(
    "source",
    [
        "MASK = (1 << 20000) - 1",
        f"SUM = {' + '.join(['1'] * 2000)}",
        "import os\nHERE = os.path.dirname(__file__)",
        "import own_other\nif own_other.__doc__:\n    import own_script",
        "COUNT = 0\ndef count():\n    global COUNT\n    COUNT += 1",
        "text = 'a\\x0cb'  # \x0c",
    ],
)
def test_unusual_code_has_the_same_hash_in_every_process_and_folder(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        (folder / "own_unusual.py").write_text(
            f"{source}\nclass Mine:\n    def get(self):\n        MASK, SUM, HERE, COUNT, text\n"
        )
        (folder / "own_other.py").write_text("")
        (folder / "own_script.py").write_text("raise SystemExit('hashing must not run this')")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(folder)
            for name in ("own_unusual", "own_other"):
                patch.delitem(sys.modules, name, raising=False)
            importlib.invalidate_caches()
            module = importlib.import_module("own_unusual")
            if hasattr(module, "count") and folder.name == "second":
                module.count()
            digests.add(source_hash("own_unusual.Mine"))
    assert len(digests) == 1


@pytest.mark.slow
def test_code_that_imports_too_many_modules_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(user_sources, "MAX_MODULES", 20)
    names = [f"own_many_{i}" for i in range(30)]
    for name in names:
        (tmp_path / f"{name}.py").write_text("RATE = 1\n" * 2000)
    imports = "\n".join(f"    import {name}" for name in names)
    (tmp_path / "own_many.py").write_text(f"def Mine():\n{imports}\n")
    importlib.invalidate_caches()
    importlib.import_module("own_many")
    with pytest.raises(ConfigError, match="more than 20 modules outside site-packages, such as"):
        source_hash("own_many.Mine")


def test_calls_do_not_change_the_hash(code_hash: Hash) -> None:
    before = code_hash()
    sys.modules["own_mine"].Mine().bias(torch.ones(2))
    user_sources._used_code.cache_clear()
    assert source_hash("own_mine.Mine") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UNUSED = 1", "UNUSED = 2"),
        ("    pass", "    x = 1"),
        ("print(", "print(1, "),
        ("Number = float", "Number = int"),
        ("def triple(x):\n    return 3", "def triple(x):\n    return 4"),
    ],
)
def test_an_edit_of_other_code_in_the_module_keeps_the_hash(
    old: str, new: str, code_hash: Hash
) -> None:
    assert code_hash() == code_hash(old, new)
