"""The literature's numbers beside the measured ones, as ratios: only those carry over."""

from collections.abc import Mapping, Sequence
from typing import Any

from posenc.config.errors import ConfigError

KEYS = ("encoding", "length", "train_wps", "eval_wps", "memory_gb")
RATE = {"forward": "eval_wps", "step": "train_wps"}
Published = dict[tuple[str, int], Mapping[str, Any]]


def read_published(given: Mapping[str, Any] | None) -> Published:
    """The rows of `published_costs` by encoding and length; ConfigError for what is none.

    `given` is {source: text, rows: [{encoding, length, train_wps, eval_wps, memory_gb}]}.
    """
    if given is None:
        return {}
    if set(given) != {"source", "rows"} or not isinstance(given["rows"], Sequence):
        raise ConfigError("published_costs must have source, a text, and rows, a list of mappings")
    for i, row in enumerate(given["rows"]):
        numbers = [row.get(key) for key in KEYS[1:]] if isinstance(row, Mapping) else []
        if not numbers or set(row) != set(KEYS) or not all(_positive(n) for n in numbers):
            raise ConfigError(
                f"published_costs.rows[{i}]={row!r} must have {', '.join(KEYS)}, numbers above 0"
            )
    return {(row["encoding"], row["length"]): row for row in given["rows"]}


def beside(row: Mapping[str, Any], published: Published) -> dict[str, float | None]:
    """Published ratios of time and of memory for a measured row, to the same encoding as its own.

    None where either was not published; memory is that of training.
    """
    own = published.get((row["encoding"], row["length"]))
    base = published.get((row["ratio_to"], row["length"]))
    if own is None or base is None:
        return {"published_ratio": None, "published_memory_ratio": None}
    rate, training = RATE[row["pass"]], row["pass"] == "step"
    memory = own["memory_gb"] / base["memory_gb"] if training else None
    return {"published_ratio": base[rate] / own[rate], "published_memory_ratio": memory}


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0
