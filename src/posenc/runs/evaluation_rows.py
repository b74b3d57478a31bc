"""The rows of `evaluation.json`, and the choice of rows that can be compared.

`evaluation/scoring.py` computes and saves rows, and `report/experiment.py` reads them.

A row is the result of a measurement: the mean loss of one protocol at one length. Its budget
(`budget_tokens` and `budget_seconds` of the evaluation) limits how many targets are scored. A run
evaluated with several budgets has several rows for one measurement, but a mean over seeds, or the
best value in a column, is meaningful only among rows that scored the same tokens.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, isclose, log
from pathlib import Path
from typing import Any, NamedTuple

from posenc.config.errors import RunError
from posenc.runs.files import RowsDigest, corrupt_file_error, read_json, write_json
from posenc.runs.lock import lock
from posenc.runs.row_types import EVALUATION, Row, RowTypes

ComparisonKey = tuple[int, tuple[Any, ...]]
"""A training length and a measurement key; only rows that share both can be compared."""
DENOMINATOR_FIELDS = {
    "loss": "count",
    "perplexity": "count",
    "perplexity_per_word": "words",
    "perplexity_per_byte": "bytes",
}
"""Metric -> the field by which a row's `sum` is divided to get it (or the log of a perplexity)."""
KEY_FIELDS = ("data", "split", "protocol", "length", "stride", "swap", "at_tokens")
BUDGET_FIELDS = ("budget_seconds", "budget_tokens")
VARIANT_FIELDS = ("longest", "swap_digest")
"""Fields that must be equal in rows that are compared, although they are not part of a row's key.

They are the longest evaluation length, which determines the targets of fixed_target, and the digest
of a custom swap's definition; each is null or missing for all other rows.
"""


def measurement_key(row: Row) -> tuple[Any, ...]:
    """Return the values that identify a measurement, regardless of its budget.

    Rows written before `evaluation.at_tokens` existed have no `at_tokens`, which means null.
    """
    return tuple(map(row.get, KEY_FIELDS))


def budget_key(row: Row) -> tuple[Any, ...]:
    """Return the budget of a row or a request; (None, None) for a row that scored every target."""
    complete = "count" in row and not budget_ran_out(row)
    return (None, None) if complete else tuple(map(row.get, BUDGET_FIELDS))


def variant_key(row: Row) -> tuple[Any, ...]:
    return tuple(map(row.get, VARIANT_FIELDS))


def budget_ran_out(row: Mapping[str, Any]) -> bool:
    """Return whether a budget ended the measurement before every target was scored."""
    return row["count"] != row.get("full_count", row["count"])


def row_key(row: Row) -> tuple[Any, ...]:
    """Return the values that identify a row; a new row replaces one with the same key.

    These are the measurement, its budget and, with a time budget, which does not determine the
    scored tokens, the hash of these tokens (in older rows, their number).
    """
    budget = budget_key(row)
    scored = () if budget[0] is None else (row.get("tokens_hash", row.get("count")),)
    return measurement_key(row) + budget + scored


def rows_with_most_tokens(rows: Sequence[Row]) -> list[Row]:
    """Return, for each measurement, the row that scored the most tokens."""
    return _largest(rows, measurement_key)


def _largest(rows: Sequence[Row], key: Callable[[Row], tuple[Any, ...]]) -> list[Row]:
    """Return the row with the most tokens for each key; on a tie, the last in the file's order."""
    if len(set(map(key, rows))) == len(rows):  # nearly always true, and saves sorting the rows
        return list(rows)
    ordered = sorted(rows, key=lambda row: (row["count"], _file_order(row)))
    largest = {key(row): row for row in ordered}
    return [row for row in rows if largest[key(row)] is row]


def _largest_by_budget(rows: Sequence[Row]) -> list[Row]:
    """Return the largest row per measurement and budget; a time budget may have several rows."""
    return _largest(rows, lambda row: measurement_key(row) + budget_key(row))


def _file_order(row: Row) -> list[str]:
    return [str(part).zfill(12) for part in row_key(row)]


class SelectedRows(NamedTuple):
    """One row per measurement of a run.

    `comparable` has those that can be compared with other runs, and `others` has the largest row of
    each remaining measurement.
    """

    comparable: list[Row]
    others: list[Row]


def select_comparable(rows_of_runs: Sequence[tuple[int, Sequence[Row]]]) -> list[SelectedRows]:
    """Choose one row per measurement of each run; takes the training length and rows of each run.

    Rows with the budget from `common_budgets` and the variant from `_common_variants` are
    comparable. For the other measurements of a run, the row that scored the most tokens is chosen.
    """
    budgets, variants = common_budgets(rows_of_runs), _common_variants(rows_of_runs)
    selected = []
    for train_length, rows in rows_of_runs:
        comparable = [
            row
            for row in _largest_by_budget(rows)
            if budget_key(row) == budgets[train_length, measurement_key(row)]
            and variant_key(row) == variants[train_length, _key_without_length(row)]
        ]
        measured = {measurement_key(row) for row in comparable}
        others = rows_with_most_tokens(
            [row for row in rows if measurement_key(row) not in measured]
        )
        selected.append(SelectedRows(comparable, others))
    return selected


def _common_variants(
    rows_of_runs: Iterable[tuple[int, Sequence[Row]]],
) -> dict[ComparisonKey, tuple[Any, ...]]:
    """Return, for each measurement at any length, the most common values of VARIANT_FIELDS.

    If several variants are equally common, the one with the longest evaluation length is returned.
    """
    counts: dict[ComparisonKey, Counter[tuple[Any, ...]]] = {}
    for train_length, rows in rows_of_runs:
        for key, variant in {(_key_without_length(row), variant_key(row)) for row in rows}:
            counts.setdefault((train_length, key), Counter())[variant] += 1
    return {
        key: max(variants, key=lambda v: (variants[v], v[0] or 0, str(v)))
        for key, variants in counts.items()
    }


def _key_without_length(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(field) for field in KEY_FIELDS if field != "length")


def common_budgets(
    rows_of_runs: Iterable[tuple[int, Sequence[Row]]],
) -> dict[ComparisonKey, Any]:
    """Return, for each measurement, the budget that most runs of a training length used.

    Takes the training length and the rows of each run. If several budgets were used by equally many
    runs, the one that scored the most tokens is returned.
    """
    counts: dict[ComparisonKey, Counter[Any]] = {}
    tokens: Counter[tuple[ComparisonKey, Any]] = Counter()
    for train_length, rows in rows_of_runs:
        for row in _largest_by_budget(rows):
            key, budget = (train_length, measurement_key(row)), budget_key(row)
            counts.setdefault(key, Counter())[budget] += 1
            tokens[key, budget] += row["count"]
    return {
        key: max(budgets, key=lambda budget: (budgets[budget], tokens[key, budget]))
        for key, budgets in counts.items()
    }


def read_rows(path: Path, types: RowTypes | None = None, owner: str | None = None) -> list[Row]:
    """Return the rows in a file; a missing file has none.

    Raises RunError if the file is corrupt or was edited, if a row does not have the given types, or
    if the file has an owner other than `owner` (see `write_rows`). Older files have neither a
    digest nor an owner.
    """
    contents = read_json(path, {"rows": []})
    if owner is not None and isinstance(contents, dict):
        saved_owner = contents.get("run", owner)
        if saved_owner != owner:
            raise RunError(
                f"{path} contains results of the run with hash {saved_owner}, but this run has the"
                f" hash {owner}; restore the file, or delete it and evaluate the run again"
            )
    rows = contents.get("rows") if isinstance(contents, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise corrupt_file_error(path, 'it is not {"rows": [{...}, ...]}')
    if contents.get("digest") not in (None, _digest(rows)):
        raise corrupt_file_error(path, "it has been edited since posenc wrote it")
    if types is not None:
        types.check(path, rows)
    for key in DENOMINATOR_FIELDS:
        if any(_is_inconsistent(row, key) for row in rows):
            raise corrupt_file_error(path, f"a {key} is inconsistent with the sum in its row")
    return rows


def write_rows(path: Path, rows: Sequence[Row], owner: str | None = None) -> None:
    """Write a file of rows with a digest of them.

    `owner` is the hash of their run or, for cached n-gram rows, the name of the cache entry.
    """
    owner_field = {} if owner is None else {"run": owner}
    write_json(path, {**owner_field, "digest": _digest(rows), "rows": rows})


def _digest(rows: Iterable[Row]) -> str:
    return RowsDigest(dict(sorted(row.items())) for row in rows).short_hexdigest()


def _is_inconsistent(row: Row, key: str) -> bool:
    """Return whether a row's metric `key` differs from its `sum` divided by the denominator.

    Metrics that are missing or null are not checked.
    """
    values: list[Any] = [row.get(name) for name in (key, "sum", DENOMINATOR_FIELDS[key])]
    if not all(isinstance(value, int | float) for value in values):
        return False
    value, total, count = values
    if key != "loss":
        value = log(value) if value > 0 else -inf
    return not isclose(value, total / max(1, count), rel_tol=1e-9, abs_tol=1e-9)


def read_evaluation(path: Path, run_hash: str | None = None) -> list[Row]:
    """Return the rows of `evaluation.json`; a missing file has none.

    Raises RunError if the file is corrupt, contains a duplicate row, or has the hash of a run other
    than `run_hash`. Older files do not have a run's hash.
    """
    rows = read_rows(path, EVALUATION, run_hash)
    if len({row_key(row) for row in rows}) < len(rows):
        raise corrupt_file_error(path, "it contains the same row twice")
    return rows


def check_same_tokens(path: Path, old: Row, new: Row | None) -> None:
    """Raise RunError if two rows of the same complete measurement scored different tokens.

    With fixed_target, the tokens depend on the longest evaluation length.
    """
    if new is None or budget_key(new) != (None, None) or "tokens_hash" not in old:
        return
    if old.get("longest") != new.get("longest"):
        return
    if old["tokens_hash"] != new["tokens_hash"]:
        raise RunError(
            f"the {new['split']} split no longer has the tokens on which the rows in {path} were"
            f" measured, although its fingerprint {new['data']} is unchanged; delete the prepared"
            f" corpus to prepare it again, or {path} to compute its results again"
        )


def merge_rows(path: Path, rows: list[Row], run_hash: str | None = None) -> None:
    """Add `rows` to the file under a lock, replacing existing rows with the same keys.

    `run_hash` is the hash of the run, which is written to the file.
    """
    with lock(path.with_name(f".{path.name}.lock")):
        merged = {row_key(row): row for row in read_rows(path)}
        merged.update({row_key(row): row for row in rows})
        write_rows(path, sorted(merged.values(), key=_file_order), run_hash)
