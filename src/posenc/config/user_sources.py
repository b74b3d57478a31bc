"""A hash of the source code that a user's class or function may use."""

import ast
import hashlib
import pkgutil
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from posenc.config.edited_modules import check_unedited
from posenc.config.errors import ConfigError
from posenc.config.module_code import (
    defined_names,
    global_variables,
    import_nodes,
    is_inert,
    mentioned_words,
    statement_source,
    top_level_statements,
)

MAX_MODULES = 1000
LIBRARY_PARTS = {"site-packages", "dist-packages"}
_LIBRARY_FOLDERS = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
_REFLECTION = {
    *("globals", "vars", "dir", "__dict__", "getattr", "attrgetter", "eval", "exec", "modules"),
    *("getmodule", "get_type_hints", "__subclasses__", "getmembers", "getattr_static", "locals"),
    *("__globals__", "f_globals", "f_locals", "__getattribute__", "resolve_name", "getclosurevars"),
}
"""Functions and attributes through which code can use names that it does not mention."""
_DYNAMIC_IMPORT = {"import_module", "__import__", "get_object", "get_class", "get_method", "locate"}
_PACKAGE_SEARCH = {"iter_modules", "walk_packages"}
_CLASS_HOOK = re.compile(r"__init_subclass__|metaclass|\(type\)")
"""Code that may run when a class is defined."""


def source_hash(path: str, words: Iterable[str] = ()) -> str:
    """Return the SHA-256 hash of the user's code that the object at `path` may use.

    `path` is a name in an imported module, such as `my_encodings.Mine`, and `words` are strings
    that the object receives, which may be names in its code. The code consists of statements at
    the top level of its module and of the user's modules that this module imports, directly or
    indirectly. A statement is left out only if it has no effect:

    - a function, class or literal whose name is not mentioned in the included statements
    - an import of a library, `if TYPE_CHECKING:` and `if __name__ == "__main__":`

    If an included statement can look up names, as `getattr` and `globals` do, no function, class or
    literal is left out. The hash also covers the values of the global numbers, strings and tuples
    that are mentioned.

    Raises OSError if the source code at `path` cannot be read, and ConfigError if a module has been
    edited since it was imported, or if there are more than MAX_MODULES.
    """
    words = frozenset(words)
    reloaded = check_unedited([_split(path)[0]])
    reloaded |= check_unedited(_used_code(path, words))
    if reloaded:
        _used_code.cache_clear()
        _is_library_module.cache_clear()
    return hashlib.sha256("\n".join(_used_code(path, words).values()).encode()).hexdigest()


def _split(path: str) -> tuple[str, str]:
    """Return the module in a path such as `module.Class.method`, and the name in this module."""
    prefixes = [path.rsplit(".", count)[0] for count in range(1, path.count(".") + 1)]
    module = next((prefix for prefix in prefixes if prefix in sys.modules), prefixes[-1])
    return module, path.removeprefix(f"{module}.").partition(".")[0]


@lru_cache
def _used_code(path: str, words: frozenset[str]) -> Mapping[str, str]:
    """Map each of the user's modules to the code in it that the object at `path` may use."""
    module, name = _split(path)
    code = _UsedCode(module, {name, *words})
    if not code.modules[module].lines:
        raise OSError(f"{module} has no source code")
    return {name: code.text(name) for name in sorted(code.modules)}


class _Module:
    """The statements of a user's module, and the modules that are loaded when it is imported."""

    def __init__(self, name: str) -> None:
        spec = _find_spec(name)
        file = Path(spec.origin) if spec and spec.has_location and spec.origin else None
        get_source = getattr(spec and spec.loader, "get_source", lambda _: None)
        source = get_source(name)
        if source is None:  # such as a compiled extension
            source = f"# {hashlib.sha256(file.read_bytes()).hexdigest()}" if file else ""
        self.lines = source.split("\n") if source else []
        self.statements = top_level_statements(source)
        self.used = dict[int, ast.stmt]()
        self.imports = set[str]()
        self.folder = str(file.parent) if file else None
        is_package = spec is not None and spec.submodule_search_locations is not None
        self.package = name if is_package else name.rpartition(".")[0]
        self.search_path = list(spec.submodule_search_locations or ()) if spec else []


class _UsedCode:
    """The user's modules that code in `module` may import, and the statements that it may use."""

    def __init__(self, module: str, words: set[str]) -> None:
        self.package = module.partition(".")[0]
        self.modules: dict[str, _Module] = {}
        self.words, self.strings = set[str](), set[str]()
        self._unused: defaultdict[str, list[tuple[_Module, ast.stmt]]] = defaultdict(list)
        self._new_words, self._new_modules, self._seen = words, {module}, set[str]()
        while self._new_words or self._new_modules:
            while self._new_words or self._new_modules:
                for name in self._pop_all(self._new_modules):
                    self._add_module(name)
                for word in self._pop_all(self._new_words):
                    self.words.add(word)
                    self._mark_used(self._unused.pop(word, []))
            self._mark_dynamically_used()
            self._new_modules -= self._seen
        self._loaded = self._loaded_modules(module)

    def text(self, name: str) -> str:
        """Return the used statements of a module, and the constants in it that they mention.

        Constants may differ between processes, so some are left out: those of modules that are
        imported inside functions, counters, and strings with the path of the module's folder.
        """
        module = self.modules[name]
        used = sorted(module.used.values(), key=lambda statement: statement.lineno)
        parts = [statement_source(module.lines, statement) for statement in used]
        values = vars(sys.modules[name]) if name in self._loaded & sys.modules.keys() else {}
        changing = {v for statement in module.statements for v in global_variables(statement)}
        for word in sorted(self.words & values.keys() - changing):
            text = None if word.startswith("__") else _constant_text(values[word])
            if text is not None and not (module.folder and module.folder in text):
                parts.append(f"{word} = {text}")
        return "\n".join(parts)

    @staticmethod
    def _pop_all(names: set[str]) -> list[str]:
        popped = sorted(names)
        names.clear()
        return popped

    def _add_module(self, name: str) -> None:
        self._seen.add(name)
        if name in self.modules or _is_library(name, self.package):
            return
        module = self.modules[name] = _Module(name)
        if len(self.modules) > MAX_MODULES:
            raise ConfigError(
                f"custom code imports more than {MAX_MODULES:,} modules outside site-packages, such"
                f" as {name}; install libraries as packages"
            )
        self._new_modules.add(name.rpartition(".")[0])
        libraries = set[str]()
        for statement in module.statements:
            origins = self._imported_modules(module, statement, in_functions=False)
            module.imports |= origins
            self._new_modules |= origins
            if isinstance(statement, ast.Import | ast.ImportFrom) and not origins:
                libraries |= defined_names(statement)
        own_names = {n for s in module.statements for n in defined_names(s)} - libraries
        for statement in module.statements:
            names = defined_names(statement)
            is_library = isinstance(statement, ast.Import | ast.ImportFrom) and names <= libraries
            if not (is_library or is_inert(statement, own_names)) or names & self.words:
                self._mark_statement_used(module, statement)
            for name in names:
                self._unused[name].append((module, statement))

    def _mark_used(self, statements: Iterable[tuple[_Module, ast.stmt]]) -> None:
        for module, statement in statements:
            self._mark_statement_used(module, statement)

    def _mark_statement_used(self, module: _Module, statement: ast.stmt) -> None:
        if id(statement) in module.used:
            return
        module.used[id(statement)] = statement
        words, strings = mentioned_words(statement)
        self._new_words |= words - self.words
        self.strings |= strings
        self._new_modules |= self._imported_modules(module, statement, in_functions=True)

    def _mark_dynamically_used(self) -> None:
        """Mark what the code may look up by computed names, and classes that may be registered."""
        unused = [item for items in self._unused.values() for item in items]
        if self.words & _REFLECTION:
            self._mark_used(unused)
        elif any(_CLASS_HOOK.search(line) for m in self.modules.values() for line in m.lines):
            self._mark_used((m, s) for m, s in unused if isinstance(s, ast.ClassDef))
        if self.words & _DYNAMIC_IMPORT:
            names = {s.lstrip(".") for s in self.strings if re.fullmatch(r"\.*\w+(\.\w+)*", s)}
            packages = {module.package for module in self.modules.values()} | {""}
            paths = {f"{package}.{name}".strip(".") for package in packages for name in names}
            prefixes = {p.rsplit(".", i)[0] for p in paths for i in range(p.count(".") + 1)}
            self._new_modules |= {prefix for prefix in prefixes if self._is_module(prefix)}
        if self.words & _PACKAGE_SEARCH:
            for name, module in self.modules.items():
                found = pkgutil.iter_modules(module.search_path, f"{name}.")
                self._new_modules |= {module.name for module in found}

    def _is_module(self, name: str) -> bool:
        return not _is_library(name, self.package) and _find_spec(name) is not None

    def _imported_modules(
        self, module: _Module, statement: ast.stmt, *, in_functions: bool
    ) -> set[str]:
        """Return the user's modules that a statement imports, or may import if it is called."""
        names = set[str]()
        for node in import_nodes(statement, in_functions=in_functions):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
                continue
            origin = node.module or ""
            if node.level:
                packages = module.package.split(".")
                parents = packages[: len(packages) + 1 - node.level]
                origin = ".".join([*parents, *([origin] if origin else [])])
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        return {name for name in names if self._is_module(name)}

    def _loaded_modules(self, root: str) -> set[str]:
        """Return the modules that are loaded in every process that has imported `root`."""
        loaded, pending = set[str](), [root]
        while pending:
            name = pending.pop()
            if name in self.modules and name not in loaded:
                loaded.add(name)
                pending += [*self.modules[name].imports, name.rpartition(".")[0]]
        return loaded


def _find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module without importing it or its parent packages."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if isinstance(spec, ModuleSpec):
        return spec
    path = None
    if parent := name.rpartition(".")[0]:
        parent_spec = _find_spec(parent)
        path = None if parent_spec is None else parent_spec.submodule_search_locations
        if path is None:
            return None
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def _is_library(name: str, package: str) -> bool:
    """Whether a name is in the stdlib, posenc or an installed package other than `package`."""
    top_level = name.partition(".")[0]
    return top_level != package and _is_library_module(top_level)


@lru_cache
def _is_library_module(name: str) -> bool:
    if name in ("", "posenc"):
        return True
    spec = _find_spec(name)
    if spec is None or spec.origin in ("built-in", "frozen"):
        return True
    folders = [spec.origin, *(spec.submodule_search_locations or ())]
    paths = [Path(folder) for folder in folders if folder]
    return not paths or any(
        LIBRARY_PARTS & set(path.parts) or path.is_relative_to(folder)
        for path in paths
        for folder in _LIBRARY_FOLDERS
    )


def _constant_text(value: Any) -> str | None:
    """Return a constant as text that is the same in every process, or None for other objects."""
    if isinstance(value, int):
        return hex(value)  # Python limits the digits of decimal numbers
    for kind in (float, complex, str, bytes):
        if isinstance(value, kind):
            represent: Callable[[Any], str] = kind.__repr__  # a subclass may have its own
            return represent(value)
    if value is None:
        return "None"
    if not isinstance(value, tuple | frozenset):
        return None
    texts = [text for item in value if (text := _constant_text(item)) is not None]
    if isinstance(value, frozenset):
        texts.sort()  # the order of sets differs between processes
    return f"{type(value).__name__}{texts}" if len(texts) == len(value) else None
