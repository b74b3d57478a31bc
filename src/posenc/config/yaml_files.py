"""Checks the YAML files of `--config-dir` before Hydra reads them."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from posenc.config.errors import ConfigError, one_line
from posenc.config.expansion import MAX_VALUES, expanded_size
from posenc.config.paths import conf_dir, groups
from posenc.config.saved_yaml import limited_events
from posenc.config.values import MAX_NESTING


def check_config_dir(folder: Path) -> Path:
    """Check a folder, the YAML files in it and those in its config groups, and return the folder.

    Raises ConfigError if it is not a folder, or if a file is not UTF-8 or not YAML, is nested too
    deeply, has too many values once its aliases are expanded, or differs from posenc's file of the
    same name, which would be used in its place.
    """
    if not folder.is_dir():
        raise ConfigError(f"--config-dir {folder} is not a folder; use a folder with YAML files")
    conf = conf_dir()
    for file in _files(folder):
        if problem := _problem(file, conf / file.relative_to(folder)):
            raise ConfigError(f"--config-dir: {file} {problem}")
    return folder


def _files(folder: Path) -> list[Path]:
    """Return the YAML files in a folder and in its config groups."""
    return [f for group in ["", *groups()] for f in sorted((folder / group).glob("*.yaml"))]


def check_config_dirs(folders: Sequence[Path]) -> list[Path]:
    """Check folders of YAML files as `check_config_dir` does, and return them.

    Also raises ConfigError if two of them have different files of the same name, because only the
    first would be used.
    """
    files: dict[Path, Path] = {}
    for folder in map(check_config_dir, folders):
        for file in _files(folder):
            first = files.setdefault(file.relative_to(folder), file)
            if first.read_bytes() != file.read_bytes():
                raise ConfigError(f"--config-dir: {first} shadows {file}; rename one of them")
    return list(folders)


def _problem(file: Path, original: Path) -> str | None:
    """Return what is wrong with a file; `original` is posenc's file of the same name."""
    if original.is_file() and file.is_file() and original.read_bytes() != file.read_bytes():
        return f"has the same name as {original}, which is used instead; rename it"
    return content_problem(file)


def content_problem(file: Path) -> str | None:
    """Return what is wrong with the contents of a file, or None."""
    if not file.is_file():
        return "is not a file"
    try:
        text = file.read_text(encoding="utf-8")
        list(limited_events(text))
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        size, depth = (0, 0) if root is None else expanded_size(root, _children, {})
        if isinstance(root, yaml.ScalarNode) and not root.tag.endswith(":null"):
            return "is a single value; write keys and values, as in `seed: 1`"
    except UnicodeDecodeError as error:
        return f"is not valid UTF-8 (byte {error.start}); save it as UTF-8"
    except yaml.YAMLError as error:
        return f"is not valid YAML: {one_line(error)}"
    if size > MAX_VALUES:
        return f"has more than {MAX_VALUES:,} values with its aliases expanded; use fewer aliases"
    if depth > MAX_NESTING:
        return f"has more than {MAX_NESTING} nested levels with its aliases expanded"
    return None


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
