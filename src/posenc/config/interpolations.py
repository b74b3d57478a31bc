"""A limit on the interpolations of a configuration, checked before OmegaConf resolves them."""

import math
import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.expansion import MAX_VALUES, expanded_size
from posenc.config.values import walk

REFERENCE = re.compile(r"\$\{\s*(\.*)([^{}:]*?)\s*\}")
"""An interpolation of a key; that of a relative key starts with dots."""


def check_interpolations(config: DictConfig) -> None:
    """Raise ConfigError if the interpolations of a configuration expand to too many values."""
    values: Any = OmegaConf.to_container(config)
    nodes = {"": values, **dict(walk(values))}
    try:
        size, _ = expanded_size("", lambda key: _children(key, nodes), {})
    except RecursionError:
        size = math.inf
    if size > MAX_VALUES:
        raise ConfigError(
            f"the interpolations expand to more than {MAX_VALUES:,} values, or refer to themselves;"
            f" use fewer ${{...}} that refer to others"
        )


def _children(key: str, nodes: dict[str, Any]) -> Iterator[str]:
    """Yield the keys inside a key, or those to which its interpolations refer."""
    value = nodes[key]
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            yield f"{key}.{name}".lstrip(".")
    elif isinstance(value, str) and "${" in value:
        for dots, name in REFERENCE.findall(value):
            parents = key.split(".")[: -len(dots)] if dots else []
            target = ".".join([*parents, re.sub(r"\[(\w+)\]", r".\1", name)])
            if target in nodes:
                yield target
