"""A hash of the source code that a user's class or function may use."""

import ast
import builtins
import hashlib
import importlib
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from posenc.config.edited_modules import check_unedited

_LIBRARY_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Import = ast.Import | ast.ImportFrom


def source_hash(path: str) -> str:
    """Return the SHA-256 hash of the user's code that the object at `path` may use.

    `path` is a name in an imported module, such as `my_encodings.Mine`. The code is that of its
    module and of the user's modules that it imports, directly or indirectly: the statements at
    their top level that

    - define a name that other hashed code mentions, even as an attribute or a string
    - may change objects, as `TABLE["a"] = 1` and `register(slope)` do

    and the values of these names if they are numbers, strings or tuples of them. Names are compared
    as text, so the hash may also cover code that the object does not use.

    Raises OSError or TypeError if the source code at `path` cannot be read, and ConfigError if a
    module has been edited since it was imported.
    """
    reloaded = check_unedited([_split(path)[0]])
    reloaded |= check_unedited(_used_code(path))
    if reloaded:
        _used_code.cache_clear()
    return hashlib.sha256("\n".join(_used_code(path).values()).encode()).hexdigest()


def _split(path: str) -> tuple[str, str]:
    """Return the module in a path such as `module.Class.method`, and the name in this module."""
    prefixes = [path.rsplit(".", count)[0] for count in range(1, path.count(".") + 1)]
    module = next((prefix for prefix in prefixes if prefix in sys.modules), prefixes[-1])
    return module, path.removeprefix(f"{module}.").partition(".")[0]


@lru_cache
def _used_code(path: str) -> Mapping[str, str]:
    """Map the user's modules to their code that the object at `path` may use."""
    name, used_name = _split(path)
    inspect.getsource(sys.modules[name])  # raises if there is no source
    package = name.partition(".")[0]
    modules: dict[str, _Module] = {}
    pending = [(name, {used_name})]
    while pending:
        name, names = pending.pop()
        if _is_library(name, package):
            continue
        if name not in modules:
            modules[name] = _Module(name, package)
        elif names <= modules[name].names:
            continue
        pending += modules[name].use(names)
    return {name: text for name in sorted(modules) if (text := modules[name].text())}


class _Module:
    """One of the user's modules, and the names that the hashed code mentions."""

    def __init__(self, name: str, package: str) -> None:
        self.name, self.package = name, package
        self.names = set[str]()
        self.loaded = sys.modules[name]
        self.used, self.unused = list[ast.stmt](), list[ast.stmt]()
        try:
            self.source = inspect.getsource(self.loaded)
            self.unused = [s for s in ast.parse(self.source).body if not _is_skipped(s)]
        except (OSError, TypeError, SyntaxError):  # such as a compiled extension
            file = Path(getattr(self.loaded, "__file__", None) or "")
            self.source = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
        self.imports = [n for s in self.unused for n in _run_at_import(s) if isinstance(n, _Import)]
        libraries = set[str]()
        for node in self.imports:
            if all(_is_library(name, package) for name, _ in self._imported(node)):
                libraries |= _defined_names(node)
        defined = {name for statement in self.unused for name in _defined_names(statement)}
        self.own_names = defined - libraries - vars(builtins).keys()

    def use(self, names: set[str]) -> Iterator[tuple[str, set[str]]]:
        """Add names that are used, and yield the names that may be used of each imported module."""
        self.names |= names
        while new := [statement for statement in self.unused if self._is_used(statement)]:
            self.used += new
            self.unused = [statement for statement in self.unused if statement not in new]
            self.names |= {name for statement in new for name in _mentioned_names(statement)}
        nodes = [*self.imports, *(node for s in self.used for node in ast.walk(s))]
        for node in nodes:
            yield from self._imported(node)

    def text(self) -> str:
        """Return the statements that are used, and the constants that they define."""
        if not self.used and not self.unused:
            return self.source
        self.used.sort(key=lambda statement: (statement.lineno, statement.col_offset))
        defined = {name for statement in self.used for name in _defined_names(statement)}
        parts = [p for s in self.used for p in [*getattr(s, "decorator_list", []), s]]
        segments = (ast.get_source_segment(self.source, p, padded=True) or "" for p in parts)
        lines = [textwrap.dedent(segment) for segment in segments]
        for name in sorted(defined & self.names & vars(self.loaded).keys()):
            if (value := _constant_text(vars(self.loaded)[name])) is not None:
                lines.append(f"{name} = {value}")
        return "\n".join(lines)

    def _is_used(self, statement: ast.stmt) -> bool:
        return not self.names.isdisjoint(_defined_names(statement)) or any(
            self._changes_objects(node) for node in _run_at_import(statement)
        )

    def _changes_objects(self, node: ast.AST) -> bool:
        """Whether the node may change objects, such as a registry, when the module is imported."""
        if isinstance(node, _Definition) and any(map(self._is_own, node.decorator_list)):
            return True
        if isinstance(node, ast.ClassDef) and any(map(self._is_own, node.bases)):
            value = vars(self.loaded).get(node.name)
            return "__subclasses__" in self.names or self._runs_own_code(value)
        if isinstance(node, ast.ImportFrom):
            return node.names[0].name == "*"
        if isinstance(node, ast.Attribute | ast.Subscript):
            return not isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)
        return isinstance(node, ast.Call) and self._is_own(node)

    def _is_own(self, node: ast.AST) -> bool:
        """Whether an expression, such as `registry.register("a")`, begins with the user's code."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        return isinstance(node, ast.Name) and node.id in self.own_names

    def _runs_own_code(self, value: Any) -> bool:
        """Whether the definition of a class runs the user's `__init_subclass__` or metaclass."""
        if not inspect.isclass(value):
            return False
        definers = [base for base in value.__mro__[1:] if "__init_subclass__" in vars(base)]
        definers += type(value).__mro__
        return not all(_is_library(definer.__module__, self.package) for definer in definers)

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, set[str]]]:
        """Yield each module that a node imports, and the names in it that may be used."""
        package = getattr(self.loaded, "__package__", None)
        if isinstance(node, ast.Import):
            for alias in node.names:
                local_name = alias.asname or alias.name.partition(".")[0]
                names = self.names if local_name in self.names else set[str]()
                yield from _imported_modules(alias.name, package, names)
                if alias.asname is None:
                    yield from _imported_modules(local_name, package, names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            for alias in node.names:
                is_used = self.names & {alias.name, alias.asname}
                names = {alias.name} if is_used else set[str]()
                names = self.names if alias.name == "*" else names
                for name, _ in (modules := list(_imported_modules(origin, package, names)))[:1]:
                    value = getattr(sys.modules[name], alias.name, None)
                    if value is None or isinstance(value, ModuleType):
                        module = value.__name__ if value else f"{name}.{alias.name}"
                        used_names = self.names if is_used else set[str]()
                        modules += _imported_modules(module, None, used_names)
                yield from modules
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", None))
            if function in ("import_module", "__import__"):
                yield from _imported_modules(str(node.args[0].value), package, self.names)


def _is_skipped(statement: ast.stmt) -> bool:
    """Whether a statement is a block that importing the module does not run."""
    if not isinstance(statement, ast.If):
        return False
    names = {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(statement.test)}
    return not names.isdisjoint({"__name__", "TYPE_CHECKING"}) and not statement.orelse


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and those inside it, except for the bodies of functions."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _run_at_import(child)


def _defined_names(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement at the top level of a module may set."""
    if isinstance(statement, _Definition):
        return {statement.name}
    names = set[str]()
    for node in _run_at_import(statement):
        if isinstance(node, _Definition):
            names.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, _Import):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names


def _mentioned_names(statement: ast.stmt) -> set[str]:
    """Return all names, attributes, keywords and strings in a statement."""
    names = set[str]()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # as in getattr(module, "NAME")
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
    return names


def _imported_modules(
    name: str, package: str | None, names: set[str]
) -> Iterator[tuple[str, set[str]]]:
    """Yield a module, which is imported if necessary, with `names`, and the packages around it."""
    try:
        name = importlib.util.resolve_name(name, package)
        importlib.import_module(name)
    except Exception:  # it is not a module, or the user's code handles the failed import
        return
    yield name, set(names)
    for count in range(1, name.count(".") + 1):
        yield name.rsplit(".", count)[0], set()


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


def _constant_text(value: Any) -> str | None:
    """Return a constant as text that is the same in every process, or None for other objects."""
    if value is None or isinstance(value, int | float | complex | str | bytes):
        return repr(value)
    if not isinstance(value, tuple | frozenset):
        return None
    texts = [text for item in value if (text := _constant_text(item)) is not None]
    if isinstance(value, frozenset):
        texts.sort()  # the order of sets differs between processes
    return f"{type(value).__name__}{texts}" if len(texts) == len(value) else None
