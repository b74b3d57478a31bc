"""The runs that a selector names, and the rows of a run."""

from collections.abc import Mapping
from typing import Any

from posenc.claims.evidence import Row, Run
from posenc.claims.grammar import Value
from posenc.config.values import canonical


def matches(config: Mapping[str, Any], of: Mapping[str, Any]) -> bool:
    """Whether a run's configuration has every value that a selector names."""
    return all(_agrees(config, key, wanted) for key, wanted in of.items())


def rows_of(value: Value, run: Run) -> list[Row]:
    """The rows of a run that a value's keys select, at every length.

    Without a corpus they are of the data that the run was trained on, without a split of the split
    that it was to be evaluated on.
    """
    wanted = {"split": run.config["evaluation"]["split"], **value.rows}
    corpus = wanted.pop("corpus", None)
    wanted |= {"data_name": corpus} if corpus else {"data": run.config["frozen"]["fingerprint"]}
    return [row for row in run.rows if all(row[key] == wanted[key] for key in wanted)]


def _agrees(config: Mapping[str, Any], key: str, wanted: Any) -> bool:
    if key in config["choices"]:
        return config["choices"][key] == wanted
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return canonical(node) == wanted
