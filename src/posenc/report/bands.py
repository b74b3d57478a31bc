"""A mean over seeds and how far it can be trusted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from posenc.claims.intervals import FEWEST_SEEDS, estimate
from posenc.claims.parse import CONFIDENCE


@dataclass(frozen=True)
class Band:
    """A mean with its t interval; with the lowest and the highest where seeds are too few.

    What follows from a formula has no seeds.
    """

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def description(self) -> str:
        """What `low` and `high` are, for a reader; nothing of a single seed."""
        if self.seeds <= 1:
            return ""
        if self.seeds < FEWEST_SEEDS:
            return f"lowest and highest of {self.seeds} seeds"
        return f"{CONFIDENCE:.0%} t interval of {self.seeds} seeds"


def exact(value: float) -> Band:
    """A number that follows from a formula."""
    return Band(value, value, value, 0)


def band(values: Sequence[float]) -> Band:
    """The mean of one value or more, and what is known of it."""
    found = estimate(values, CONFIDENCE)
    if len(values) < FEWEST_SEEDS or found.low is None or found.high is None:
        return Band(found.mean, min(values), max(values), len(values))
    return Band(found.mean, found.low, found.high, len(values))


def band_text(bands: Iterable[Band]) -> str:
    """What the points of a figure are, and what its bands are."""
    counts = {band.seeds for band in bands}
    if counts == {0}:
        return ""
    if counts == {1}:
        return "One seed"
    each = "-".join(str(n) for n in dict.fromkeys((min(counts), max(counts))))
    interval, ends = (
        f"the {CONFIDENCE:.0%} t interval of the mean",
        "from the lowest to the highest",
    )
    if max(counts) < FEWEST_SEEDS:
        return f"Mean of {each} seeds, band {ends}"
    if min(counts - {1}) >= FEWEST_SEEDS:
        return f"Mean of {each} seeds, band {interval}"
    return f"Mean of {each} seeds, band {interval} of {FEWEST_SEEDS} seeds or more, else {ends}"
