"""The rows of `evaluation.json`, and the choice of rows that can be compared.

A row is one measurement: the mean loss of one protocol at one length. Its budget (`budget_tokens`
and `budget_seconds` of the evaluation) limits how many targets it scores. A run evaluated with
several budgets has several rows for one measurement, but a mean over seeds, or the best value of a
column, is meaningful only among rows that scored the same tokens.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc.config.errors import RunError
from posenc.config.values import is_finite
from posenc.runs.files import corrupt_file_error, read_json, write_json
from posenc.runs.lock import lock

Row = dict[str, Any]
ComparisonKey = tuple[int, tuple[Any, ...]]
"""A training length and the key of a measurement: rows with the same ones can be compared."""
NO_TYPES: Mapping[str, Any] = {}
ROW_TYPES = {
    **dict.fromkeys(("data", "data_name", "split", "protocol"), str),
    **dict.fromkeys(("length", "count"), int),
    "stride": int | None,
    "swap": str | None,
    "loss": int | float,
}
"""The required keys of an evaluation row and their types."""
OPTIONAL_ROW_TYPES = {
    "tokens_hash": str,
    "full_count": int,
    **dict.fromkeys(("words", "bytes"), int | None),
    **dict.fromkeys(("sum", "coverage", "accuracy", "exact"), int | float),
    **dict.fromkeys(("at_tokens", "budget_seconds", "budget_tokens"), int | float | None),
    **dict.fromkeys(("perplexity", "perplexity_per_word"), int | float | None),
    "perplexity_per_byte": int | float | None,
}
"""The optional keys of an evaluation row and their types."""
NGRAM_TYPES = {"order": int, "data": str, "split": str, "count": int, "loss": int | float}
"""The required keys of a row of `ngrams.json` and their types."""
KEY_FIELDS = ("data", "split", "protocol", "length", "stride", "swap", "at_tokens")
BUDGET_FIELDS = ("budget_seconds", "budget_tokens")


def measurement_key(row: Row) -> tuple[Any, ...]:
    """Return the values that identify a measurement, regardless of its budget.

    Rows written before `evaluation.at_tokens` existed have no `at_tokens`, which means null.
    """
    return tuple(row.get(name) for name in KEY_FIELDS)


def budget_key(row: Row) -> tuple[Any, ...]:
    """Return the budget of a row or a request; (None, None) for a row that scored every target."""
    complete = "count" in row and row["count"] == row.get("full_count", row["count"])
    return (None, None) if complete else tuple(row.get(name) for name in BUDGET_FIELDS)


def row_key(row: Row) -> tuple[Any, ...]:
    """Return the values that identify a row; rows with the same key replace each other."""
    return measurement_key(row) + budget_key(row)


def largest_rows(rows: Sequence[Row]) -> list[Row]:
    """Return, for each measurement, the row that scored the most tokens."""
    ordered = sorted(rows, key=lambda row: row["count"])
    largest = {measurement_key(row): row for row in ordered}
    return [row for row in rows if largest[measurement_key(row)] is row]


class SelectedRows(NamedTuple):
    """One row per measurement of a run: those comparable with other runs, and all others."""

    comparable: list[Row]
    others: list[Row]


def select_comparable(rows_of_runs: Sequence[tuple[int, Sequence[Row]]]) -> list[SelectedRows]:
    """Choose one row per measurement of each run; takes the training lengths and rows of the runs.

    Rows with the budget from `common_budgets` are comparable. Other measurements of a run have the
    row that scored the most tokens.
    """
    budgets = common_budgets(rows_of_runs)
    selected = []
    for train_length, rows in rows_of_runs:
        comparable = [
            row for row in rows if budget_key(row) == budgets[train_length, measurement_key(row)]
        ]
        measured = {measurement_key(row) for row in comparable}
        others = largest_rows([row for row in rows if measurement_key(row) not in measured])
        selected.append(SelectedRows(comparable, others))
    return selected


def common_budgets(
    rows_of_runs: Iterable[tuple[int, Sequence[Row]]],
) -> dict[ComparisonKey, Any]:
    """Return, for each measurement, the budget that most runs of a training length used.

    Takes the training length and the rows of each run. Among budgets that equally many runs used,
    the one that scored the most tokens is returned.
    """
    counts: dict[ComparisonKey, Counter[Any]] = {}
    tokens: Counter[tuple[ComparisonKey, Any]] = Counter()
    for train_length, rows in rows_of_runs:
        for row in rows:
            key, budget = (train_length, measurement_key(row)), budget_key(row)
            counts.setdefault(key, Counter())[budget] += 1
            tokens[key, budget] += row["count"]
    return {
        key: max(budgets, key=lambda budget: (budgets[budget], tokens[key, budget]))
        for key, budgets in counts.items()
    }


def read_rows(
    path: Path,
    types: Mapping[str, Any] = NO_TYPES,
    optional: Mapping[str, Any] = NO_TYPES,
    run_hash: str | None = None,
) -> list[Row]:
    """Return the rows in a file; a missing file has none.

    `types` maps keys that every row must have to their types; `optional` does the same for keys
    that a row may have. Raises RunError if the file is corrupt, or if it names another run than
    that with `run_hash`.
    """
    contents = read_json(path, {"rows": []})
    if run_hash is not None and isinstance(contents, dict):
        named = contents.get("run", run_hash)
        if named != run_hash:
            raise RunError(
                f"{path} has results of the run with hash {named}, but this run has the hash"
                f" {run_hash}; delete the file and evaluate the run again"
            )
    rows = contents.get("rows") if isinstance(contents, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise corrupt_file_error(path, 'it is not {"rows": [{...}, ...]}')
    wrong = {key for row in rows for key in types if not _has_type(row.get(key, ...), types[key])}
    wrong |= {
        key
        for row in rows
        for key in optional.keys() & row.keys()
        if not _has_type(row[key], optional[key])
    }
    if wrong:
        raise corrupt_file_error(path, f"missing or of the wrong type: {', '.join(sorted(wrong))}")
    return rows


def _has_type(value: Any, expected: Any) -> bool:
    """Whether a value has a type; as in `matches_type`, bools do not count as numbers.

    A file may have thousands of rows, for which `matches_type` would take seconds.
    """
    return isinstance(value, expected) and not isinstance(value, bool) and is_finite(value)


def read_evaluation(path: Path, run_hash: str | None = None) -> list[Row]:
    """Return the rows of `evaluation.json`; a missing file has none.

    Raises RunError if the file is corrupt, has a row twice, or names another run than that with
    `run_hash`. Older files do not name their run.
    """
    rows = read_rows(path, ROW_TYPES, OPTIONAL_ROW_TYPES, run_hash)
    if len({row_key(row) for row in rows}) < len(rows):
        raise corrupt_file_error(path, "it contains the same row twice")
    return rows


def check_same_tokens(path: Path, old: Row, new: Row | None) -> None:
    """Raise RunError if two rows of the same complete measurement come from different tokens."""
    if new is None or budget_key(new) != (None, None) or "tokens_hash" not in old:
        return
    if old["tokens_hash"] != new["tokens_hash"]:
        raise RunError(
            f"the tokens of the {new['split']} split are not those that {path} was measured on,"
            f" although the fingerprint {new['data']} is the same; delete the prepared corpus to"
            f" prepare it again, or this file to replace its results"
        )


def merge_rows(path: Path, rows: list[Row], run_hash: str | None = None) -> None:
    """Add `rows` to the file under a lock, replacing existing rows with the same keys.

    `run_hash` is the hash of the run, which the file then names.
    """
    with lock(path.with_name(f".{path.name}.lock")):
        merged = {row_key(row): row for row in read_rows(path)}
        merged.update({row_key(row): row for row in rows})
        ordered = sorted(
            merged.values(), key=lambda row: [str(part).zfill(12) for part in row_key(row)]
        )
        write_json(path, {**({"run": run_hash} if run_hash else {}), "rows": ordered})
