"""What a claim may be about: where each quantity is read and on which scale it is compared."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from statistics import median
from typing import Any, Literal

SPEED = "tokens per second"
Record = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """A number of one run.

    `source` says what `read` is given: the evaluation row at one length, the rows at all lengths,
    or the lines of timing.jsonl. `protocol` is the one whose rows are meant where a claim names
    none. A `ratio` is read as its logarithm: its differences are
    ratios.
    """

    name: str
    unit: str
    ratio: bool
    source: Literal["row", "rows", "timing"]
    read: Callable[[Any], float]
    protocol: str = "nonoverlapping"

    def shown(self, mean: float) -> float:
        """A mean on the scale of comparison in the quantity's own unit."""
        return math.exp(mean) if self.ratio else mean

    def difference(self, mean: float) -> float:
        """A mean difference as it is told: for a ratio the share by which it is off 1."""
        return math.expm1(mean) if self.ratio else mean


def _log_of(key: str) -> Callable[[Record], float]:
    return lambda row: math.log(row[key])


def _length_of_minimum(rows: list[Record]) -> float:
    return float(min(rows, key=lambda row: (row["loss"], row["length"]))["length"])


def _training_speed(lines: list[Record]) -> float:
    """The median over the intervals that were timed, so that a pause of the machine counts once."""
    return math.log(median(line["tokens_per_second"] for line in lines))


def _training_memory(lines: list[Record]) -> float:
    return math.log(max(line["memory_mb"] for line in lines))


_TOLD = (
    Quantity("perplexity", "perplexity per token", True, "row", itemgetter("loss")),
    Quantity("loss", "nats per token", False, "row", itemgetter("loss")),
    Quantity("accuracy", "share of answers", False, "row", itemgetter("accuracy"), "tasks"),
    Quantity("exact", "share of sequences", False, "row", itemgetter("exact"), "tasks"),
    Quantity("length_of_minimum", "tokens", False, "rows", _length_of_minimum),
    Quantity("evaluation_tokens_per_second", SPEED, True, "row", _log_of("tokens_per_second")),
    Quantity("evaluation_memory_mb", "MB", True, "row", _log_of("peak_memory_mb")),
    Quantity("training_tokens_per_second", SPEED, True, "timing", _training_speed),
    Quantity("training_memory_mb", "MB", True, "timing", _training_memory),
)
QUANTITIES = {quantity.name: quantity for quantity in _TOLD}
