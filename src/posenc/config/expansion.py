"""The size of values once their aliases or interpolations are expanded, computed without doing so.

A few lines of references to references can expand to billions of values.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

MAX_VALUES = 100_000
"""The maximum number of expanded values; more take minutes, and no experiment has a tenth of it."""


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
