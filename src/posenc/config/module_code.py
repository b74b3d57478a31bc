"""Static analysis of a module's statements: the names that they define, mention and change."""

import ast
import re
from collections.abc import Iterable, Iterator

PLAIN_DECORATORS = {
    *("dataclass", "property", "cached_property", "staticmethod", "classmethod", "lru_cache"),
    *("cache", "overload", "override", "no_grad", "inference_mode", "compile", "total_ordering"),
}
"""Library decorators that affect only the function or class that they decorate."""
_LITERALS = (
    *(ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Name, ast.Attribute),
    *(ast.expr_context, ast.UnaryOp, ast.BinOp, ast.unaryop, ast.operator),
)
_OPERATIONS = ast.UnaryOp | ast.BinOp
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITION = _FUNCTION | ast.ClassDef


def top_level_statements(source: str) -> list[ast.stmt]:
    """Return the top-level statements of a module, except blocks that do not run on import."""
    return [s for s in ast.parse(source).body if not _is_skipped(s)]


def statement_source(lines: list[str], statement: ast.stmt) -> str:
    """Return the lines of a statement and of its decorators."""
    decorators = getattr(statement, "decorator_list", [])
    first = min(node.lineno for node in (statement, *decorators))
    return "\n".join(lines[first - 1 : statement.end_lineno])


def defined_names(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement at the top level of a module may set."""
    if isinstance(statement, _DEFINITION):
        return {statement.name}
    names = set[str]()
    for node in _run_at_import(statement):
        if isinstance(node, _DEFINITION):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def mentioned_words(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the words in a statement, and its strings.

    The words are names, attributes and the words in the strings. Docstrings are ignored.
    """
    nodes = list(ast.walk(statement))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    words, texts = set[str](), dict[int, str]()
    for node in nodes:
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            words |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts[id(node)] = node.value
    strings = {text for node_id, text in texts.items() if node_id not in docstrings}
    return words.union(*(re.findall(r"\w+", text) for text in strings)), strings


def global_variables(statement: ast.stmt) -> set[str]:
    """Return the global variables that the functions in a statement may assign."""
    return {n for node in ast.walk(statement) if isinstance(node, ast.Global) for n in node.names}


def import_nodes(statement: ast.stmt, *, in_functions: bool) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports in a statement, optionally with those in the bodies of functions."""
    nodes = ast.walk(statement) if in_functions else _run_at_import(statement)
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def is_inert(statement: ast.stmt, own_names: set[str]) -> bool:
    """Whether a statement is known to have no effect except to define its names.

    This holds for functions, classes and assignments of literals if defining them calls nothing but
    library decorators. Code of base classes, such as `__init_subclass__`, is not considered.
    `own_names` are the names in the module that do not refer to a library.
    """
    if isinstance(statement, _DEFINITION):
        if not all(_is_plain(decorator, own_names) for decorator in statement.decorator_list):
            return False
        if isinstance(statement, ast.ClassDef):
            bases = [*statement.bases, *(keyword.value for keyword in statement.keywords)]
            return not _has_call(bases) and all(
                isinstance(s, ast.Pass) or is_inert(s, own_names) for s in statement.body
            )
        signature = [statement.args, *([statement.returns] if statement.returns else [])]
        is_hook = statement.name in ("__getattr__", "__dir__")  # of a module
        return not is_hook and not _has_call(signature)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        allowed = (ast.Name, ast.Tuple, ast.expr_context)
        are_names = all(isinstance(n, allowed) for target in targets for n in ast.walk(target))
        return are_names and (statement.value is None or _is_literal(statement.value))
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_plain(decorator: ast.expr, own_names: set[str]) -> bool:
    """Whether a decorator is one of PLAIN_DECORATORS and comes from a library."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    while isinstance(node, ast.Attribute):
        node = node.value
    return name in PLAIN_DECORATORS and isinstance(node, ast.Name) and node.id not in own_names


def _has_call(nodes: Iterable[ast.AST]) -> bool:
    return any(isinstance(inner, ast.Call) for node in nodes for inner in ast.walk(node))


def _is_literal(value: ast.expr) -> bool:
    """Whether an expression consists of constants and names, with operations only on constants."""
    nodes = list(ast.walk(value))
    has_operations = any(isinstance(node, _OPERATIONS) for node in nodes)
    has_names = any(isinstance(node, ast.Name) for node in nodes)
    return all(isinstance(n, _LITERALS) for n in nodes) and not (has_operations and has_names)


def _is_skipped(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    tests = ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'")
    return ast.unparse(statement.test) in tests


def _run_at_import(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a statement and the nodes in it, except for the bodies of functions."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _FUNCTION | ast.Lambda):
            pending += ast.iter_child_nodes(node)
