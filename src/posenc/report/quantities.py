"""The quantities that claims compare: where each is measured and on which scale it is compared."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import Any, Literal

SPEED_UNIT = "tokens per second"
Row = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A number measured for each run.

    `source` is the argument of `read`: the evaluation row at one length ("row"), the rows at all
    lengths ("rows"), or the lines of timing.jsonl ("timing"). If a quantity is
    `compared_as_ratio`, `read` returns its logarithm. `protocol` is the default protocol.
    """

    name: str
    unit: str
    compared_as_ratio: bool
    source: Literal["row", "rows", "timing"]
    read: Callable[[Any], float]
    protocol: str = "nonoverlapping"

    def in_unit(self, mean: float) -> float:
        """Convert a mean of values returned by `read` to `unit`."""
        return math.exp(mean) if self.compared_as_ratio else mean

    def relative(self, difference: float) -> float:
        """Convert a difference of values from `read` to ratio - 1 if it is compared as a ratio."""
        return math.expm1(difference) if self.compared_as_ratio else difference


def _log_of(key: str) -> Callable[[Row], float]:
    return lambda row: math.log(row[key])


def _length_of_minimum(rows: list[Row]) -> float:
    return float(min(rows, key=lambda row: (row["loss"], row["length"]))["length"])


def _training_speed(lines: list[Row]) -> float:
    """Return the log of the median speed; unlike the mean, it is robust to pauses."""
    return math.log(median(line["tokens_per_second"] for line in lines))


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("perplexity", "perplexity per token", True, "row", itemgetter("loss")),
        Quantity("loss", "nats per token", False, "row", itemgetter("loss")),
        Quantity("accuracy", "fraction of answers", False, "row", itemgetter("accuracy"), "tasks"),
        Quantity("exact", "fraction of sequences", False, "row", itemgetter("exact"), "tasks"),
        Quantity("length_of_minimum", "tokens", False, "rows", _length_of_minimum),
        Quantity(
            "evaluation_tokens_per_second", SPEED_UNIT, True, "row", _log_of("tokens_per_second")
        ),
        Quantity("evaluation_memory_mb", "MB", True, "row", _log_of("peak_memory_mb")),
        Quantity("training_tokens_per_second", SPEED_UNIT, True, "timing", _training_speed),
        Quantity(
            *("training_memory_mb", "MB", True, "timing"),
            lambda lines: math.log(max(line["memory_mb"] for line in lines)),
        ),
    )
}
