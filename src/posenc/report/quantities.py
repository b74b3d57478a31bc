"""The quantities that claims compare, with their sources and comparison scales."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import Any, Literal

from posenc.report.scale import Scale
from posenc.runs.row_types import Row


@dataclass(frozen=True)
class Quantity:
    """A number measured for each run.

    `source` determines the argument of `read`: the evaluation row at one length ("row"), the rows
    at all lengths ("rows"), or the lines of timing.jsonl ("timing"). `read` returns the number on
    the comparison scale (for a ratio, its logarithm). `protocol` is the default protocol.
    """

    name: str
    scale: Scale
    source: Literal["row", "rows", "timing"]
    read: Callable[[Any], float]
    protocol: str = "nonoverlapping"


def _log_of(key: str) -> Callable[[Row], float]:
    return lambda row: math.log(row[key])


def _length_of_minimum(rows: list[Row]) -> float:
    return float(min(rows, key=lambda row: (row["loss"], row["length"]))["length"])


def _training_speed(lines: list[Row]) -> float:
    """Return the log of the median speed; unlike the mean, the median is robust to pauses."""
    return math.log(median(line["tokens_per_second"] for line in lines))


def _training_memory(lines: list[Row]) -> float:
    return math.log(max(line["memory_mb"] for line in lines))


SPEED = Scale("tokens per second", "ratio")
MEMORY = Scale("MB", "ratio")
ANSWER_TOKENS = Scale("fraction of answer tokens", "difference")
SEQUENCES = Scale("fraction of sequences", "difference")
QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("perplexity", Scale("perplexity per token", "ratio"), "row", itemgetter("loss")),
        Quantity("loss", Scale("nats per token", "difference"), "row", itemgetter("loss")),
        Quantity("accuracy", ANSWER_TOKENS, "row", itemgetter("accuracy"), "tasks"),
        Quantity("exact", SEQUENCES, "row", itemgetter("exact"), "tasks"),
        Quantity("length_of_minimum", Scale("tokens", "difference"), "rows", _length_of_minimum),
        Quantity("evaluation_tokens_per_second", SPEED, "row", _log_of("tokens_per_second")),
        Quantity("evaluation_memory_mb", MEMORY, "row", _log_of("peak_memory_mb")),
        Quantity("training_tokens_per_second", SPEED, "timing", _training_speed),
        Quantity("training_memory_mb", MEMORY, "timing", _training_memory),
    )
}
