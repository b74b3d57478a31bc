"""The quantities in the result tables: how they are computed from mean losses and formatted."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp


def format_number(value: float) -> str:
    """Return a number with two decimals; large numbers get fewer digits."""
    if value < 1000:
        return f"{value:.2f}"
    return f"{value:.0f}" if value < 1e6 else f"{value:.2e}"


@dataclass(frozen=True)
class TableQuantity:
    """A quantity of a table.

    `from_mean` converts a mean over seeds, described by `mean` in tooltips, to the quantity, and
    `text` formats it.
    """

    name: str
    from_mean: Callable[[float], float]
    text: Callable[[float], str]
    mean: str
    note: str


PERPLEXITY = TableQuantity(
    "perplexity",
    from_mean=exp,
    text=format_number,
    mean="loss in nats per token",
    note="Perplexity per token: the exponential of the mean loss over seeds, which is the geometric"
    " mean of the seeds' perplexities. Lower is better.",
)
ACCURACY = TableQuantity(
    "accuracy",
    from_mean=float,
    text="{:.3f}".format,
    mean="accuracy",
    note="Fraction of answer tokens that the model ranks first, given the correct preceding answer"
    " tokens; mean over seeds. Higher is better.",
)
