"""Chooses the evaluation budget of each measurement that a report compares and averages.

A run that was evaluated with several budgets has several rows for one measurement. A mean over
seeds, or the best value of a column, is meaningful only among rows that scored the same tokens.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from posenc.runs.evaluation_rows import budget_key, largest_rows, measurement_key

Row = dict[str, Any]
Key = tuple[int, tuple[Any, ...]]
"""A training length and the key of a measurement."""


def common_budgets(rows_of_runs: Iterable[tuple[int, Sequence[Row]]]) -> dict[Key, Any]:
    """Return, for each measurement, the budget that most runs of a training length used.

    Takes the training length and the rows of each run. Among budgets that equally many runs used,
    the one that scored the most tokens is returned.
    """
    counts: dict[Key, Counter[Any]] = {}
    tokens: Counter[tuple[Key, Any]] = Counter()
    for train_length, rows in rows_of_runs:
        for row in rows:
            key, budget = (train_length, measurement_key(row)), budget_key(row)
            counts.setdefault(key, Counter())[budget] += 1
            tokens[key, budget] += row["count"]
    return {
        key: max(budgets, key=lambda budget: (budgets[budget], tokens[key, budget]))
        for key, budgets in counts.items()
    }


def one_row_per_measurement(
    rows: Sequence[Row], train_length: int, budgets: Mapping[Key, Any]
) -> list[Row]:
    """Return one row per measurement: with the common budget, or else with the most tokens."""
    common = [row for row in rows if has_common_budget(row, train_length, budgets)]
    measured = {measurement_key(row) for row in common}
    others = [row for row in rows if measurement_key(row) not in measured]
    return [*common, *largest_rows(others)]


def has_common_budget(row: Row, train_length: int, budgets: Mapping[Key, Any]) -> bool:
    """Whether a row has the budget that most runs used, so that they can be compared."""
    return budget_key(row) == budgets[train_length, measurement_key(row)]
