"""Hashes of the source code of a user's class or function, and of what it refers to."""

import ast
import hashlib
import importlib
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import _lru_cache_wrapper, lru_cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from posenc.config.edited_modules import check_unedited

_LIBRARY_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}


def source_hashes(target: Any) -> Mapping[str, str]:
    """Return a hash of `target` and of each global that its code uses, by qualified name.

    The globals are those of the user's modules, including those used indirectly. The hashed text is

    - for a function or class, such as a base class: its source code
    - for a number, a string or a tuple of them: its value
    - for any other object, such as a tensor: the module's statements that assign or use it and, for
      a dict, list or set, the functions and classes in it

    Raises OSError or TypeError if the source code of `target` cannot be read, and ConfigError if a
    module has been edited since it was imported.
    """
    reloaded = check_unedited([target.__module__])
    reloaded |= check_unedited(_modules(_hashes(target)))
    if reloaded:
        _hashes.cache_clear()
    return _hashes(target)


def _modules(qualified_names: Iterable[str]) -> set[str]:
    """Return the modules of qualified names, such as `module.Class.method`."""
    prefixes = (n.rsplit(".", i)[0] for n in qualified_names for i in range(1, n.count(".") + 1))
    return {prefix for prefix in prefixes if prefix in sys.modules}


@lru_cache
def _hashes(target: Any) -> Mapping[str, str]:
    source = inspect.getsource(target)
    module, name = target.__module__, target.__qualname__
    package = module.partition(".")[0]
    source = _source(target, module, name) or source
    texts = {f"{module}.{name}": [source]}  # several for functions of the same name, such as `_`
    pending = [*_references(module, source)]
    seen = {(f"{module}.{name}", id(target))}
    while pending:
        module, name, value = pending.pop()
        module, name = _definition(value) or (module, name)
        qualified = f"{module}.{name}"
        if (qualified, id(value)) in seen or _is_library(qualified, package):
            continue
        seen.add((qualified, id(value)))
        constant = _constant_text(value)
        is_mutable = isinstance(value, dict | list | set)  # such as a cache or a registry
        text = _source(value, module, name) if constant is None or is_mutable else None
        text = text or constant
        if text is not None and text not in texts.setdefault(qualified, []):
            texts[qualified].append(text)
            if text != constant:
                pending += [*_references(module, text), *_contained_definitions(value)]
    combined = {name: "\n".join(texts[name]) for name in sorted(texts)}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in combined.items()}


def _contained_definitions(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the module, name and value of each class and function in a dict, list or set.

    Also yields the implementations registered with a `functools.singledispatch` function.
    """
    if inspect.isfunction(value):
        value = getattr(value, "registry", ())
    items = value.values() if isinstance(value, Mapping) else value
    for item in items if isinstance(value, Mapping | list | set) else ():
        if definition := _definition(item):
            yield *definition, item


def _references(module: str, source: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the module, name and value of each object that a definition in `module` refers to."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:  # there is no source, or it is part of a longer expression
        return
    names = dict(getattr(sys.modules.get(module), "__dict__", {}))
    for imported_module, name, local_name, value in _imports(tree, module):
        names[local_name] = value
        if not isinstance(value, ModuleType):
            yield imported_module, name, value
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            if not isinstance(names[node.id], ModuleType):
                yield module, node.id, names[node.id]
        elif isinstance(node, ast.Attribute):
            owner = _module(node.value, names)
            value = getattr(owner, node.attr, None)
            if owner is not None and value is not None and not isinstance(value, ModuleType):
                yield owner.__name__, node.attr, value


def _imports(tree: ast.AST, module: str) -> Iterator[tuple[str, str, str, Any]]:
    """Yield the origin, original name, local name and value of each import in part of a module."""
    package = getattr(sys.modules.get(module), "__package__", None)
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else []:
            origin = alias.name
            if isinstance(node, ast.ImportFrom):
                origin = "." * node.level + (node.module or "")
            try:
                imported = importlib.import_module(origin, package)
                if isinstance(node, ast.ImportFrom):
                    value = getattr(imported, alias.name)
                    yield imported.__name__, alias.name, alias.asname or alias.name, value
                elif alias.asname:
                    yield origin, "", alias.asname, imported
                else:
                    name = origin.partition(".")[0]
                    yield origin, "", name, sys.modules[name]
            except Exception:  # the user's code may handle an import that fails
                continue


def _module(node: ast.expr, names: dict[str, Any]) -> ModuleType | None:
    """Return the module that an expression such as `package.module` denotes, if any."""
    value = None
    if isinstance(node, ast.Name):
        value = names.get(node.id)
    elif isinstance(node, ast.Attribute) and (parent := _module(node.value, names)):
        value = getattr(parent, node.attr, None)
    return value if isinstance(value, ModuleType) else None


def _definition(value: Any) -> tuple[str, str] | None:
    """Return the module and the qualified name of a class or function.

    Returns None for other objects, for lambdas, and for functions and classes that are defined
    inside a function.
    """
    value = _without_cache(value)
    is_definition = inspect.isclass(value) or inspect.isfunction(value)
    if not is_definition or "<" in value.__qualname__:
        return None
    return value.__module__, value.__qualname__


def _without_cache(value: Any) -> Any:
    return value.__wrapped__ if isinstance(value, _lru_cache_wrapper) else value


def _is_library(name: str, package: str) -> bool:
    """Whether a name is in posenc, the stdlib or an installed package other than `package`."""
    top_level = name.partition(".")[0]
    if top_level == package:
        return False
    module = sys.modules.get(top_level)
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
    if file is None or top_level == "posenc":
        return True
    return any(Path(file).is_relative_to(folder) for folder in _LIBRARY_FOLDERS)


def _source(value: Any, module: str, name: str) -> str | None:
    """Return the definition of a class or function, or the statements that set a global.

    If the source of a class or function cannot be read, returns its qualified name.
    """
    definition = _definition(value)
    try:
        # For a class that is defined twice, inspect may return the definition that is not used.
        is_global_class = inspect.isclass(value) and "." not in name
        statements = _statements(module, name) if definition is None or is_global_class else None
        if statements is not None or definition is None:
            return statements
        return inspect.getsource(_without_cache(value))
    except (OSError, TypeError, SyntaxError):
        return None if definition is None else ".".join(definition)


def _statements(module: str, name: str) -> str | None:
    """Return a module's statements that may set or change the value of a global name, or None.

    These are its definitions, the statements that assign or import it, other statements outside
    functions that mention it, such as `TABLE.append(1)`, with the enclosing loop, and the functions
    that are decorated with it.
    """
    source = inspect.getsource(sys.modules[module])

    def source_segments(node: ast.AST) -> Iterator[str]:
        parts = [*getattr(node, "decorator_list", []), node]
        segments = (ast.get_source_segment(source, part, padded=True) or "" for part in parts)
        yield from map(textwrap.dedent, segments)

    def assigning_statements(nodes: Iterable[ast.stmt]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.If | ast.Try | ast.With):
                bodies = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
                bodies += [handler.body for handler in getattr(node, "handlers", [])]
                inner = list(assigning_statements(chain(*bodies)))
                header = _header(node)
                if _assigns(header, name) or (inner and isinstance(node, ast.If)):
                    for part in header:
                        yield from source_segments(part)
                yield from inner
            elif name in _mentioned_names(node):
                yield from source_segments(node)

    return "\n".join(assigning_statements(ast.parse(source).body)) or None


def _header(statement: ast.If | ast.Try | ast.With) -> list[ast.expr]:
    """Return the condition of an `if`, or the expressions and targets of a `with`."""
    if isinstance(statement, ast.If):
        return [statement.test]
    items = statement.items if isinstance(statement, ast.With) else []
    return [part for i in items for part in (i.context_expr, i.optional_vars) if part is not None]


def _assigns(expressions: Iterable[ast.expr], name: str) -> bool:
    nodes = (node for expression in expressions for node in ast.walk(expression))
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in nodes
    )


def _mentioned_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement uses.

    For a class or function, these are only its own name and those in its decorators.
    """
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in statement.names}
    own, parts = set[str](), [statement]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        own, parts = {statement.name}, statement.decorator_list
    return own | {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}


def _constant_text(value: Any) -> str | None:
    """Return a constant as text that is the same in every process, or None for other objects."""
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
