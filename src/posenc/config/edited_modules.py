"""Detects user modules whose files have been edited since Python imported them, as in a notebook.

Jobs import the edited file, so this process would evaluate their weights with other code than they
were trained with.
"""

import hashlib
import inspect
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import posenc
from posenc.config.errors import ConfigError

_seen: dict[str, tuple[ModuleSpec | None, str]] = {}
"""Module -> its spec, which `importlib.reload` replaces, and the digest of its file."""


def check_unedited(name: str) -> bool:
    """Raise ConfigError if a module's file has been edited since Python imported the module.

    If the file is newer than this process and was not checked before, its functions are compiled
    and compared with those in memory. Returns whether the module has been reloaded since the last
    check.
    """
    module = sys.modules.get(name)
    file = Path(getattr(module, "__file__", None) or "")
    if module is None or file.suffix != ".py" or not file.is_file():
        return False
    source = file.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    spec, seen_digest = _seen.get(name, (None, None))
    if name in _seen and spec is module.__spec__:
        is_edited = digest != seen_digest
    else:
        is_new = file.stat().st_mtime > posenc.IMPORT_TIME
        is_edited = is_new and not _functions_match(module, source)
    if is_edited:
        raise ConfigError(
            f"{file} has been edited since Python imported it; restart Python, or call"
            f" importlib.reload({name}) and import again what you use from it"
        )
    is_reloaded = name in _seen and spec is not module.__spec__
    _seen[name] = module.__spec__, digest
    return is_reloaded


def _functions_match(module: ModuleType, source: bytes) -> bool:
    """Whether the functions of a module have the bytecode and lines of those in `source`."""
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
    """Yield the functions that a module defines, and the methods of its classes."""
    for value in vars(module).values():
        is_own_class = inspect.isclass(value) and value.__module__ == module.__name__
        for member in vars(value).values() if is_own_class else [value]:
            is_method = isinstance(member, staticmethod | classmethod)
            function = member.__func__ if is_method else member
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                yield inspect.unwrap(function)
