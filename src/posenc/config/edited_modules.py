"""Detects user modules whose files have been edited since Python imported them, as in a notebook.

Jobs import the edited file, but this process still has the old code, and would evaluate their
weights with it.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import posenc
from posenc.config.errors import ConfigError

_seen: dict[str, tuple[ModuleSpec | None, str]] = {}
"""Module -> its spec, which `importlib.reload` replaces, and the digest of its file."""


def check_unedited(modules: Iterable[str]) -> bool:
    """Return whether any of the modules has been reloaded since its last check.

    Raises ConfigError if a module's file has been edited since Python imported it. If the file was
    modified after posenc was imported and has not been checked before, its functions are compiled
    and compared with those in memory.
    """
    return any([_check_unedited(module) for module in modules])  # a list, to check every module


def _check_unedited(name: str) -> bool:
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    file = Path(path if isinstance(path, str) else "")
    if module is None or file.suffix != ".py" or not file.is_file():
        return False
    source = file.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    spec, seen_digest = _seen.get(name, (None, None))
    if name in _seen and spec is module.__spec__:
        is_edited = digest != seen_digest
    else:
        is_recent = file.stat().st_mtime > posenc.IMPORT_TIME
        is_edited = is_recent and not _functions_match(module, source)
    if is_edited:
        raise ConfigError(
            f"{file} has been edited since Python imported it; restart Python, or call"
            f" importlib.reload({name}) and import the names that you use from it again"
        )
    is_reloaded = name in _seen and spec is not module.__spec__
    _seen[name] = module.__spec__, digest
    return is_reloaded


def _functions_match(module: ModuleType, source: bytes) -> bool:
    """Return whether a module's functions and line numbers match those of `source`."""
    file = str(module.__file__)
    try:
        pending = [compile(source, file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return False
    compiled = set()
    while pending:
        code = pending.pop()
        compiled.add(code)
        pending += [const for const in code.co_consts if isinstance(const, CodeType)]
    codes = [function.__code__ for function in _functions(module)]
    # The methods that dataclasses generate have no file.
    return all(code in compiled for code in codes if code.co_filename == file)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions that a module defines, and the methods and properties of its classes."""
    pending, seen = [*vars(module).values()], set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if isinstance(value, property):
            pending += [value.fget, value.fset, value.fdel]
        elif isinstance(value, cached_property):
            pending.append(value.func)
        elif getattr(value, "__module__", None) != module.__name__ or id(value) in seen:
            continue
        elif inspect.isclass(value):
            seen.add(id(value))
            pending += vars(value).values()
        elif inspect.isfunction(value):
            yield inspect.unwrap(value)
