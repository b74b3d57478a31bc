"""The files with a run's evaluation results: `evaluation.json` and arrays of summed losses."""

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from math import ceil, floor, isclose, log2, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from posenc.config.errors import RunError
from posenc.config.values import is_nonfinite
from posenc.runs.files import corrupt_file_error, read_json, write_atomic, write_json
from posenc.runs.lock import lock

BINS_PER_OCTAVE = 4
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
MAX_INTEGER = 2**63
"""A bound on the integers in a file; larger ones cannot be converted to a float or an array."""
NGRAM_TYPES = {"order": int, "data": str, "split": str, "count": int, "loss": int | float}
"""The required keys of a row of `ngrams.json` and their types."""
KEY_FIELDS = ("data", "split", "protocol", "length", "stride", "swap", "at_tokens")
BUDGET_FIELDS = ("budget_seconds", "budget_tokens")


def measurement_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values that identify a measurement, regardless of its budget.

    Rows written before `evaluation.at_tokens` existed have no `at_tokens`, which means null.
    """
    return tuple(row.get(name) for name in KEY_FIELDS)


def budget_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the budget of a row or a request; (None, None) for a row that scored every target."""
    complete = "count" in row and row["count"] == row.get("full_count", row["count"])
    return (None, None) if complete else tuple(row.get(name) for name in BUDGET_FIELDS)


def row_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values that identify a row; rows with the same key replace each other."""
    return measurement_key(row) + budget_key(row)


def largest_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each measurement, the row that scored the most tokens."""
    ordered = sorted(rows, key=lambda row: row["count"])
    largest = {measurement_key(row): row for row in ordered}
    return [row for row in rows if largest[measurement_key(row)] is row]


def read_rows(
    path: Path,
    types: Mapping[str, Any] = NO_TYPES,
    optional: Mapping[str, Any] = NO_TYPES,
    run_hash: str | None = None,
) -> list[dict[str, Any]]:
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
    """Whether a value has a type; bools do not count as numbers, nor do inf and NaN.

    A file may have thousands of rows, for which `matches_type` would take seconds.
    """
    if isinstance(value, bool) or not isinstance(value, expected):
        return False
    if isinstance(value, int):
        return abs(value) < MAX_INTEGER
    return not is_nonfinite(value)


def read_evaluation(path: Path, run_hash: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of `evaluation.json`; a missing file has none.

    Raises RunError if the file is corrupt, has a row twice, or names another run than that with
    `run_hash`. Older files do not name their run.
    """
    rows = read_rows(path, ROW_TYPES, OPTIONAL_ROW_TYPES, run_hash)
    if len({row_key(row) for row in rows}) < len(rows):
        raise corrupt_file_error(path, "it contains the same row twice")
    return rows


def check_same_tokens(path: Path, old: dict[str, Any], new: dict[str, Any] | None) -> None:
    """Raise RunError if two rows of the same complete measurement come from different tokens."""
    if new is None or budget_key(new) != (None, None) or "tokens_hash" not in old:
        return
    if old["tokens_hash"] != new["tokens_hash"]:
        raise RunError(
            f"the tokens of the {new['split']} split are not those that {path} was measured on,"
            f" although the fingerprint {new['data']} is the same; delete the prepared corpus to"
            f" prepare it again, or this file to replace its results"
        )


def merge_rows(path: Path, rows: list[dict[str, Any]], run_hash: str | None = None) -> None:
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


def positions_name(row: dict[str, Any]) -> str:
    """Return the name of a row's arrays in `loss_by_position.npz`, without `.sum` or `.count`."""
    swap = "" if row["swap"] is None else f".{row['swap']}"
    return f"{row['data']}.{row['split']}.{row['length']}{swap}{at_tokens_suffix(row)}"


def at_tokens_suffix(row: dict[str, Any]) -> str:
    """Return the end of the names of a row's arrays: `.at_tokens=<n>`, or nothing if it is null."""
    at_tokens = row.get("at_tokens")
    return "" if at_tokens is None else f".at_tokens={at_tokens}"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    try:
        if not path.is_file():
            raise OSError("not a regular file")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(
            f"{path} is corrupt ({error}); delete it and evaluate the run again"
        ) from None


def merge_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Add arrays to an npz file under a lock, replacing existing arrays with the same names."""
    with lock(path.with_name(f".{path.name}.lock")):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **{**read_arrays(path), **arrays})
        write_atomic(path, buffer.getvalue())


def sums_and_counts(
    row: dict[str, Any], arrays: Mapping[str, np.ndarray], name: str
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the arrays `<name>.sum` and `<name>.count` of an evaluation row.

    Returns None if there are none, or if they do not match the row: the row and its arrays are
    written one after the other, so a process can be killed between the two writes.
    """
    if f"{name}.sum" not in arrays:
        return None
    sums, counts = arrays[f"{name}.sum"], arrays[f"{name}.count"]
    same_sum = isclose(sums.sum(), row["loss"] * row["count"], rel_tol=1e-9)
    return (sums, counts) if same_sum and counts.sum() == row["count"] else None


def end_of_window_loss(row: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> float | None:
    """Return the mean loss over the last quarter of the positions in a row's windows.

    Returns None if the row has no losses by position, or none in that quarter.
    """
    stored = sums_and_counts(row, arrays, positions_name(row))
    if stored is None:
        return None
    sums, counts = (array[3 * len(array) // 4 :] for array in stored)
    return float(sums.sum() / counts.sum()) if counts.any() else None


def bin_positions(
    sums: np.ndarray, counts: np.ndarray, train_length: int, min_tokens: int = 0
) -> list[tuple[float, float, int]]:
    """Return log-spaced bins of positions as (center, mean loss, tokens).

    Positions start at 1; a bin's center is the geometric mean of its first and last positions. One
    bin ends at the training length, so that no bin extends across it. Any other bin with fewer than
    `min_tokens` tokens, except the last, is merged with the next one.
    """
    first = floor(-BINS_PER_OCTAVE * log2(train_length))
    last = ceil(BINS_PER_OCTAVE * log2(len(sums) / train_length))
    ends = np.floor(train_length * 2 ** (np.arange(first, last) / BINS_PER_OCTAVE)).astype(int)
    edges = np.unique(np.clip([0, *ends, len(sums)], 0, len(sums))).tolist()
    bins, start = [], 0
    for end in edges[1:]:
        tokens = int(counts[start:end].sum())
        if 0 < tokens < min_tokens and end not in (train_length, len(sums)):
            continue
        if tokens:
            center = sqrt((start + 1) * end)
            bins.append((center, float(sums[start:end].sum()) / tokens, tokens))
        start = end
    return bins
