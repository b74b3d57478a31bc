"""Imports flow one way, the docs name existing files, and files and functions stay small."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "posenc"
LAYERS = [
    {"config"},
    {"runs"},
    {"data", "encodings"},
    {"attention"},
    {"model"},
    {"check"},
    {"training"},
    {"evaluation"},
    {"report"},
    {"tracking"},
    {"jobs"},
    {"sweeps"},
    {"benchmark"},
    {"inspect"},
    {"api"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def syntax_tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def imported(file: Path) -> set[str]:
    """Return the full names of the posenc modules that a file imports, anywhere in the file."""
    names: set[str] = set()
    for node in ast.walk(syntax_tree(file)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name for name in names if name.split(".")[0] == "posenc" and "." in name}


def test_imports_flow_one_way() -> None:
    wrong = []
    for file in FILES:
        package = file.relative_to(SOURCE).parts[0]
        for name in imported(file) if package in RANK else ():
            other = name.split(".")[1]
            if other != package and RANK[other] >= RANK[package]:
                wrong.append(f"{file.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_every_package_has_a_layer() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(RANK)


@pytest.mark.parametrize("file", sorted((SOURCE / "encodings").rglob("*.py")), ids=lambda f: f.stem)
def test_encodings_import_only_torch_the_standard_library_and_their_package(file: Path) -> None:
    for node in ast.walk(syntax_tree(file)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            root = name.split(".")[0]
            ours = name.startswith("posenc.encodings")
            assert ours or root == "torch" or root in sys.stdlib_module_names, name


def test_files_and_functions_stay_small() -> None:
    too_long = [file.name for file in FILES if len(file.read_text().splitlines()) > 300]
    for file in FILES:
        for node in ast.walk(syntax_tree(file)):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 48:
                too_long.append(f"{file.name}: {node.name}")
    assert too_long == []


def test_only_the_checked_builder_instantiates_configurations() -> None:
    """`config/components.py` checks every target before it calls Hydra's `instantiate`."""
    instantiating = [
        file.relative_to(SOURCE).as_posix()
        for file in FILES
        if re.search(r"hydra\.utils|\binstantiate\(", file.read_text())
    ]
    assert instantiating == ["config/components.py"]


def test_every_console_replaces_control_characters() -> None:
    """rich's own `Console` would let text from a run's files control the terminal."""
    for file in FILES:
        text = file.read_text()
        creates_console = re.search(r"\bConsole\(", text) and file.name != "console.py"
        assert not creates_console or "from posenc.config.console import Console" in text, file


def test_the_architecture_page_names_existing_files_and_functions() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    for file in re.findall(r"`(\w+/[\w/]+\.py)`", page):
        assert (SOURCE / file).exists() or (SOURCE.parents[1] / file).exists(), file
    for file, names in re.findall(r"`(\w+/\w+\.py)`: ((?:`[\w.]+`(?:,? and |, )?)+)", page):
        text = (SOURCE / file).read_text()
        for name in re.findall(r"[\w.]+(?=`)", names):
            defined = rf"(?:def|class) {name.split('.')[-1]}\b|^{name}\b"
            assert re.search(defined, text, re.MULTILINE), f"{file}: {name}"
