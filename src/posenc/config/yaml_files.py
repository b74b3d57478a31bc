"""Checks the YAML files of `--config-dir` before Hydra reads them."""

import math
from pathlib import Path

import yaml

from posenc.config.errors import ConfigError, one_line
from posenc.config.paths import groups
from posenc.config.saved_yaml import events_within_limit
from posenc.config.values import MAX_NESTING

MAX_VALUES = 100_000
"""The maximum number of values in a file; a few lines of aliases can expand to billions."""


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
    if not file.is_file():
        return "is not a file"
    try:
        text = file.read_text(encoding="utf-8")
        list(events_within_limit(text))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        size, depth = (0, 0) if root is None else _expanded_size(root, {})
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}; save it as UTF-8"
    except yaml.YAMLError as error:
        return f"is not valid YAML: {one_line(error)}"
    if size > MAX_VALUES:
        return f"has more than {MAX_VALUES:,} values with its aliases expanded; use fewer aliases"
    if depth > MAX_NESTING:
        return f"has more than {MAX_NESTING} nested levels with its aliases expanded"
    return None


def _expanded_size(node: yaml.Node, known: dict[int, tuple[float, float]]) -> tuple[float, float]:
    """Return the number of values and the depth of a node; infinity if the node contains itself.

    `known` maps the ids of the nodes visited so far to their results.
    """
    if id(node) not in known:
        known[id(node)] = math.inf, math.inf
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        results = [_expanded_size(child, known) for child in children]
        size = 1 + sum(size for size, _ in results)
        known[id(node)] = size, 1 + max((depth for _, depth in results), default=0)
    return known[id(node)]
