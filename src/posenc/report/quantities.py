"""The quantities that claims compare: where each is measured and on which scale."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import Any, Literal

SPEED = "tokens per second"
Row = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A number of one run.

    `source` says what `read` takes: the evaluation row at one length, the rows at all lengths, or
    the lines of timing.jsonl. `protocol` is the protocol of the rows where a claim names none. A
    `ratio` is read as its logarithm, so that differences are ratios.
    """

    name: str
    unit: str
    ratio: bool
    source: Literal["row", "rows", "timing"]
    read: Callable[[Any], float]
    protocol: str = "nonoverlapping"

    def in_unit(self, mean: float) -> float:
        """Return a mean on the scale of comparison in the quantity's own unit."""
        return math.exp(mean) if self.ratio else mean

    def relative(self, difference: float) -> float:
        """Return a mean difference as it is reported: for a ratio, the ratio minus 1."""
        return math.expm1(difference) if self.ratio else difference


def _log_of(key: str) -> Callable[[Row], float]:
    return lambda row: math.log(row[key])


def _length_of_minimum(rows: list[Row]) -> float:
    return float(min(rows, key=lambda row: (row["loss"], row["length"]))["length"])


def _training_speed(lines: list[Row]) -> float:
    """Return the log of the median over the timed intervals, which a pause hardly changes."""
    return math.log(median(line["tokens_per_second"] for line in lines))


def _training_memory(lines: list[Row]) -> float:
    return math.log(max(line["memory_mb"] for line in lines))


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("perplexity", "perplexity per token", True, "row", itemgetter("loss")),
        Quantity("loss", "nats per token", False, "row", itemgetter("loss")),
        Quantity("accuracy", "fraction of answers", False, "row", itemgetter("accuracy"), "tasks"),
        Quantity("exact", "fraction of sequences", False, "row", itemgetter("exact"), "tasks"),
        Quantity("length_of_minimum", "tokens", False, "rows", _length_of_minimum),
        Quantity("evaluation_tokens_per_second", SPEED, True, "row", _log_of("tokens_per_second")),
        Quantity("evaluation_memory_mb", "MB", True, "row", _log_of("peak_memory_mb")),
        Quantity("training_tokens_per_second", SPEED, True, "timing", _training_speed),
        Quantity("training_memory_mb", "MB", True, "timing", _training_memory),
    )
}
