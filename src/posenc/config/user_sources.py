"""Hashes of the source code of a user's class or function, and of what it refers to."""

import ast
import hashlib
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

_LIBRARY_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}


@lru_cache
def source_hashes(target: Any) -> Mapping[str, str]:
    """Map the qualified names of `target` and of the globals that its code uses to hashes.

    The globals are functions, classes (such as base classes) and constants of the user's modules,
    including those used indirectly. Constants are numbers, strings and containers of them; other
    objects are left out. Raises OSError or TypeError if the source code of `target` cannot be read.
    """
    source = inspect.getsource(target)
    package, texts = target.__module__.partition(".")[0], {_path(target): source}
    pending = [(target, source)]
    while pending:
        for path, value in _references(*pending.pop()):
            if path in texts or _is_library(path, package):
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                texts[path] = _source(value)
                pending.append((value, texts[path]))
            elif (text := _constant_text(value)) is not None:
                texts[path] = text
    return {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}


def _references(definition: Any, source: str) -> Iterator[tuple[str, Any]]:
    """Yield what a class or function refers to in its module, and in modules that it imports."""
    names = getattr(sys.modules.get(definition.__module__), "__dict__", {})
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # there is no source, or it is part of a longer expression
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            value = names[node.id]
            if not isinstance(value, ModuleType):
                yield _path(value, f"{definition.__module__}.{node.id}"), value
        elif isinstance(node, ast.Attribute):
            module = _module(node.value, names)
            if module is not None and hasattr(module, node.attr):
                value = getattr(module, node.attr)
                if not isinstance(value, ModuleType):
                    yield _path(value, f"{module.__name__}.{node.attr}"), value


def _module(node: ast.expr, names: dict[str, Any]) -> ModuleType | None:
    """Return the module that an expression such as `package.module` denotes, if any."""
    value = None
    if isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.Attribute) and (parent := _module(node.value, names)):
        value = getattr(parent, node.attr, None)
    return value if isinstance(value, ModuleType) else None


def _path(value: Any, default: str = "") -> str:
    """Return the module and name of a class or function; those of other values are `default`."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return default


def _is_library(path: str, package: str) -> bool:
    """Whether a path is in posenc, the standard library or an installed package, not `package`."""
    top_level = path.partition(".")[0]
    if top_level == package:
        return False
    module = sys.modules.get(top_level)
    files = (
        [file] if (file := getattr(module, "__file__", None)) else getattr(module, "__path__", [])
    )
    if not files or top_level == "posenc":
        return True
    return any(Path(file).is_relative_to(folder) for file in files for folder in _LIBRARY_FOLDERS)


def _source(definition: Any) -> str:
    try:
        return inspect.getsource(definition)
    except (OSError, TypeError):
        return repr(definition)


def _constant_text(value: Any) -> str | None:
    """Return the same text for equal constants in every process, or None for other objects."""
    if value is None or isinstance(value, int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, dict):
        value = list(value.items())
    if not isinstance(value, list | tuple | set | frozenset):
        return None
    texts = [text for item in value if (text := _constant_text(item)) is not None]
    if isinstance(value, set | frozenset):
        texts.sort()  # the order of sets differs between processes
    return f"{type(value).__name__}{texts}" if len(texts) == len(value) else None
