"""Limits on the size of values once their aliases or interpolations are expanded.

A few lines of references to references can expand to billions of values. The size is therefore
computed without expanding them, before OmegaConf resolves the interpolations.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from posenc.config.errors import ConfigError
from posenc.config.values import walk

MAX_VALUES = 100_000
"""The maximum number of values after expansion; expanding to more would take minutes.

posenc's largest experiment has less than a tenth as many.
"""
REFERENCE = re.compile(r"\$\{\s*(\.*)([^{}:]*?)\s*\}")
"""An interpolation such as `${seed}`; a relative one has leading dots, as in `${.width}`."""


def expanded_size(
    node: Any, children: Callable[[Any], Iterable[Any]], known: dict[Any, tuple[float, float]]
) -> tuple[float, float]:
    """Return the number of values and the depth of a node; infinity if the node contains itself.

    `known` maps the nodes visited so far to their results.
    """
    if node not in known:
        known[node] = math.inf, math.inf
        results = [expanded_size(child, children, known) for child in children(node)]
        size = 1 + sum(size for size, _ in results)
        known[node] = size, 1 + max((depth for _, depth in results), default=0)
    return known[node]


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
            f" use fewer ${{...}} that refer to other interpolations"
        )


def _children(key: str, nodes: dict[str, Any]) -> Iterator[str]:
    """Yield the keys of a container's items, or those that a string's interpolations refer to."""
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
