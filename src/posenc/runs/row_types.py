"""The types of the rows in a run's files, which are checked when a file is read."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from posenc.config.values import MAX_INTEGER, UNPRINTABLE
from posenc.runs.files import corrupt_file_error

Row = dict[str, Any]


class RowTypes:
    """The types of the values in a file's rows; keys added by later versions are not checked.

    `required` and `optional` map keys to a type or a union of types. Values of the keys in
    `positive` must be greater than 0.
    """

    def __init__(
        self,
        required: Mapping[str, Any],
        optional: Mapping[str, Any] | None = None,
        positive: Iterable[str] = (),
    ) -> None:
        self.required = required.keys()
        self.types = {
            key: frozenset(get_args(annotation) or (annotation,))
            for key, annotation in {**required, **(optional or {})}.items()
        }
        self.positive = frozenset(positive)

    def check(self, path: Path, rows: Sequence[Row]) -> None:
        """Raise RunError if a row of the file `path` lacks a required key or has a wrong value."""
        wrong = []
        for key, types in self.types.items():  # by column: a file may have a million rows
            values = [row[key] for row in rows if key in row]
            is_missing = key in self.required and len(values) < len(rows)
            if is_missing or not _are_valid(values, types, positive=key in self.positive):
                wrong.append(key)
        if wrong:
            raise corrupt_file_error(path, f"missing or invalid: {', '.join(sorted(wrong))}")


def _are_valid(values: Sequence[Any], types: frozenset[type], *, positive: bool) -> bool:
    """Return whether values have these exact types; a bool is not a number.

    Integers must fit into 64 bits, as in an array, and strings must be printable: the figure
    renderer crashes on control characters. The parser has checked that floats are finite.
    """
    if not set(map(type, values)) <= types:
        return False
    if any(type(value) is int and abs(value) > MAX_INTEGER for value in values):
        return False
    if str in types and any(value is not None and UNPRINTABLE.search(value) for value in values):
        return False
    return not positive or all(value is None or value > 0 for value in values)


EVALUATION = RowTypes(
    {
        **dict.fromkeys(("data", "data_name", "split", "protocol"), str),
        **dict.fromkeys(("length", "count"), int),
        "stride": int | None,
        "swap": str | None,
        "loss": int | float,
    },
    {
        "tokens_hash": str,
        "swap_digest": str,
        "full_count": int,
        **dict.fromkeys(("words", "bytes", "at_tokens", "longest"), int | None),
        **dict.fromkeys(("sum", "coverage", "accuracy", "exact", "seconds"), int | float),
        **dict.fromkeys(("tokens_per_second", "peak_memory_mb"), int | float),
        **dict.fromkeys(("budget_seconds", "budget_tokens"), int | float | None),
        **dict.fromkeys(("perplexity", "perplexity_per_word"), int | float | None),
        "perplexity_per_byte": int | float | None,
    },
    positive=("length", "count", "stride", "at_tokens", "tokens_per_second", "peak_memory_mb"),
)
NGRAMS = RowTypes({"order": int, "data": str, "split": str, "count": int, "loss": int | float})
METRICS = RowTypes(
    {"step": int},
    dict.fromkeys(
        ("tokens", "loss", "learning_rate", "gradient_norm", "validation_loss"), int | float
    ),
)
"""The numbers that posenc logs in a row of `metrics.jsonl`; Lightning callbacks may add others."""
TIMING_KEYS = ("tokens_per_second", "memory_mb")
TIMING = RowTypes(
    dict.fromkeys(TIMING_KEYS, int | float),
    {"step": int, "seconds": int | float},
    positive=TIMING_KEYS,
)
