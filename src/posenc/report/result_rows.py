"""The rows of a result table; each value is compared with the best value of its column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posenc.evaluation.protocols import NONOVERLAPPING_PROTOCOLS
from posenc.report.bootstrap import DESCRIPTION, difference_interval
from posenc.report.claim import CONFIDENCE, MIN_SEEDS
from posenc.report.confidence import t_interval
from posenc.report.curve_set import Curve, CurveSet, Point
from posenc.report.early_tokens import EarlyTokens, early_tokens
from posenc.runs.loss_arrays import BlockSums


@dataclass(frozen=True)
class Difference:
    """A paired difference of two means with its interval; `method` describes the interval."""

    mean: float
    low: float
    high: float
    method: str

    @property
    def includes_zero(self) -> bool:
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class RankedPoint:
    """The point in one cell of a result table.

    `best` is true if it is the best of its column or not statistically distinguishable from it; it
    is false in the whole column if not all points come from the same number of tokens.
    `difference` is its difference from the best point; None for the best point itself, or if there
    is no interval.
    """

    point: Point
    best: bool
    difference: Difference | None


@dataclass(frozen=True)
class ResultRow:
    """The values of one curve by evaluation length."""

    curve: Curve
    values: Mapping[float, RankedPoint]
    early_tokens: EarlyTokens | None


ResultSet = tuple[CurveSet, Sequence[ResultRow]]
"""A set of comparable curves and their table rows."""


def result_rows(curves: CurveSet) -> list[ResultRow]:
    """Return a row for each curve of a set."""
    columns = {x: _column(curves, x) for x in curves.x_values}
    nonoverlapping = curves.measurement.protocol in NONOVERLAPPING_PROTOCOLS
    return [
        ResultRow(
            curve,
            {x: column[curve.label] for x, column in columns.items() if curve.label in column},
            early_tokens(curve, curves.train_length) if nonoverlapping else None,
        )
        for curve in curves.curves
    ]


def incomparable_lengths(rows: Sequence[ResultRow]) -> list[int]:
    """Return the lengths at which the rows scored different tokens, so that none is the best."""
    lengths = {x for row in rows for x in row.values}
    with_best = {x for row in rows for x, value in row.values.items() if value.best}
    return sorted(int(x) for x in lengths - with_best)


def paired_difference(left: Point, right: Point) -> Difference | None:
    """Return the mean of `left` minus that of `right`, over the seeds that both have.

    If both have losses by block for the same tokens, the interval comes from the bootstrap.
    Otherwise, it is the t interval over seeds. Returns None if there are too few seeds for that.
    """
    seeds = [seed for seed in left.seeds if seed in right.seeds]
    a, b = _blocks(left, seeds), _blocks(right, seeds)
    if seeds and a and b and _same_tokens([*a, *b]):
        interval = difference_interval(a, b)
        if interval is not None:
            method = f"{DESCRIPTION}; covers {interval.covers}"
            return Difference(interval.mean, interval.low, interval.high, method)
    pairs = [(left.values[left.seeds.index(s)], right.values[right.seeds.index(s)]) for s in seeds]
    if len(pairs) < MIN_SEEDS:
        return None
    interval = t_interval([x - y for x, y in pairs], CONFIDENCE)
    assert interval.low is not None and interval.high is not None
    return Difference(interval.mean, interval.low, interval.high, "t interval over seeds")


def _column(curves: CurveSet, x: float) -> dict[str, RankedPoint]:
    """Return the values at one length by label."""
    points = {c.label: point for c in curves.curves if (point := c.point_at(x)) is not None}
    best = curves.quantity.choose(points.values(), key=lambda point: point.mean)
    comparable = len({point.tokens for point in points.values()}) == 1
    values = {}
    for label, point in points.items():
        difference = None if point is best else paired_difference(point, best)
        tied = difference is not None and difference.includes_zero
        is_best = comparable and (tied or point.mean == best.mean)
        values[label] = RankedPoint(point, is_best, difference)
    return values


def _blocks(point: Point, seeds: Sequence[int]) -> list[BlockSums]:
    """Return the blocks of a point for these seeds; empty if any of them are missing."""
    by_seed = dict(zip(point.seeds, point.blocks, strict=True))
    blocks = [sums for seed in seeds if (sums := by_seed[seed]) is not None]
    return blocks if len(blocks) == len(seeds) else []


def _same_tokens(blocks: Sequence[BlockSums]) -> bool:
    """Whether all measurements scored the same number of targets in every block."""
    return all(np.array_equal(blocks[0].counts, other.counts) for other in blocks[1:])
