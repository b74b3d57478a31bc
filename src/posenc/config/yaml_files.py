"""Checks the YAML files of `--config-dir` before Hydra reads them."""

import math
from pathlib import Path

import yaml

from posenc.config.errors import ConfigError, one_line
from posenc.config.paths import groups

MAX_VALUES = 100_000
"""The maximum number of values in a file; a few lines of aliases can stand for billions."""


def check_yaml_files(folder: Path) -> None:
    """Check the YAML files in the config groups of `folder`.

    Raises ConfigError if a file is not UTF-8 or not YAML, if it is nested too deeply, or if it has
    too many values once its aliases are expanded.
    """
    for group in ["", *groups()]:
        for file in sorted((folder / group).glob("*.yaml")):
            if problem := _problem(file):
                raise ConfigError(f"--config-dir: {file} {problem}")


def _problem(file: Path) -> str | None:
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        size = 0 if root is None else _expanded_size(root, {})
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}; save it as UTF-8"
    except yaml.YAMLError as error:
        return f"is not valid YAML: {one_line(error)}"
    except RecursionError:
        return "is nested too deeply; use fewer levels"
    if size > MAX_VALUES:
        return f"has more than {MAX_VALUES:,} values with its aliases expanded; use fewer aliases"
    return None


def _expanded_size(node: yaml.Node, sizes: dict[int, float]) -> float:
    """Return the number of values in a node, or infinity if the node contains itself.

    `sizes` has the sizes of the nodes counted so far, by id.
    """
    if id(node) not in sizes:
        sizes[id(node)] = math.inf
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes) for child in children)
    return sizes[id(node)]
