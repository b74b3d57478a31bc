"""Checks the YAML files of `--config-dir` before Hydra reads them."""

import math
from pathlib import Path

import yaml

from posenc.config.errors import ConfigError, one_line
from posenc.config.paths import conf_dir, groups
from posenc.config.saved_yaml import events_within_limit
from posenc.config.values import MAX_NESTING

MAX_VALUES = 100_000
"""The maximum number of values in a file; a few lines of aliases can expand to billions."""


def check_config_dir(folder: Path) -> Path:
    """Check a folder and the YAML files in its config groups, and return it.

    Raises ConfigError if it is not a folder, or if a file is not UTF-8 or not YAML, is nested too
    deeply, has too many values once its aliases are expanded, or has the name of an option of
    posenc, which would be used in its place.
    """
    if not folder.is_dir():
        raise ConfigError(f"--config-dir {folder} is not a folder; use a folder with YAML files")
    conf = conf_dir()
    for group in ["", *groups()]:
        for file in sorted((folder / group).glob("*.yaml")):
            if problem := _problem(file, conf / group / file.name):
                raise ConfigError(f"--config-dir: {file} {problem}")
    return folder


def _problem(file: Path, original: Path) -> str | None:
    """Return what is wrong with a file; `original` is the file of posenc with the same name."""
    if not file.is_file():
        return "is not a file"
    if original.is_file() and original.read_bytes() != file.read_bytes():
        return f"has the same name as a file of posenc, {original}, which is used; rename it"
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
