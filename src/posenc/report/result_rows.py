"""The rows of a result table; each value is compared with the best value of its column.

A row also has the fraction of its gain in longer windows that is explained by early tokens. Tokens
at the beginning of a window have little context. Longer windows have a smaller proportion of them,
so the mean loss falls even if a model makes no use of context beyond the training length L (the
early-token curse: Press et al. 2022, appendix B). Let e be the loss at the end of windows of L
tokens. If every position from L on had the loss e, the loss in windows of T tokens would be

    loss(T) = e + L (loss(L) - e) / T,

of the form a + S / T. See docs/report.md for what this does and does not show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression

import numpy as np

from posenc.evaluation.protocols import NONOVERLAPPING_PROTOCOLS
from posenc.report.bootstrap import DESCRIPTION, bootstrap_interval
from posenc.report.confidence import MIN_SEEDS, Band, band
from posenc.report.curve_set import Curve, CurveSet, Point
from posenc.runs.loss_arrays import BlockSums

MIN_LENGTHS = 3
"""The minimum number of lengths T for fitting a line in 1 / T."""


@dataclass(frozen=True)
class EarlyTokenEffect:
    """The fitted S (`slope`) in nats per window, and the fraction of the gain due to early tokens.

    `fraction` is None if the curve has no loss at the training length, if the losses by position
    were not saved, if any seed has no gain, or if the interval for the gain includes 0.
    """

    slope: Band
    fraction: Band | None


def early_tokens(curve: Curve, train_length: int) -> EarlyTokenEffect | None:
    """Return the early-token statistics of a curve of loss by length.

    They are computed for each seed that was evaluated at all lengths from the training length on.
    Returns None if there are too few lengths or no such seed.
    """
    points = [point for point in curve.points if point.x >= train_length]
    if len(points) < MIN_LENGTHS:
        return None
    seeds = sorted(set.intersection(*(set(point.seeds) for point in points)))
    by_seed = [
        {point.x: point.values[point.seeds.index(seed)] for point in points} for seed in seeds
    ]
    if not seeds:
        return None
    slope = band([fitted_slope(losses) for losses in by_seed])
    reference = curve.point_at(train_length)
    if reference is None:
        return EarlyTokenEffect(slope, None)
    end_losses = [reference.end_losses[reference.seeds.index(seed)] for seed in seeds]
    fractions = [
        explained_fraction(losses, train_length, end_loss)
        for losses, end_loss in zip(by_seed, end_losses, strict=True)
    ]
    known = [fraction for fraction in fractions if fraction is not None]
    gain = band([losses[train_length] - losses[max(losses)] for losses in by_seed])
    is_uncertain = gain.is_t_interval and gain.low <= 0
    return EarlyTokenEffect(slope, None if is_uncertain or len(known) < len(seeds) else band(known))


def fitted_slope(losses: Mapping[float, float]) -> float:
    """Return S of the least-squares fit of a + S / T to losses by length T."""
    return linear_regression([1 / length for length in losses], list(losses.values())).slope


def explained_fraction(
    losses: Mapping[float, float], train_length: int, end_loss: float | None
) -> float | None:
    """Return the fraction of the gain from L to the longest length that early tokens explain.

    `end_loss` is the loss at the end of windows of L tokens. Returns None if `end_loss` is None or
    if there is no gain.
    """
    longest = max(losses)
    gain = losses[train_length] - losses[longest]
    if end_loss is None or gain <= 0:
        return None
    return (1 - train_length / longest) * (losses[train_length] - end_loss) / gain


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
class TableValue:
    """The point in one cell of a result table.

    `best` is true for the best point of the column and for points that are not statistically
    distinguishable from it; it is false in the whole column if the points were not all scored on
    the same number of tokens. `difference` is the difference from the best point; None for the best
    point itself, or if there is no interval.
    """

    point: Point
    best: bool
    difference: Difference | None


@dataclass(frozen=True)
class ResultRow:
    """The values of one curve by evaluation length."""

    curve: Curve
    values: Mapping[float, TableValue]
    early_tokens: EarlyTokenEffect | None


ResultSet = tuple[CurveSet, Sequence[ResultRow]]
"""A set of comparable curves and their table rows."""


def result_rows(curves: CurveSet) -> list[ResultRow]:
    """Return a row for each curve of a set."""
    columns = {x: _column(curves, x) for x in curves.x_values}
    nonoverlapping = curves.evaluation_key.protocol in NONOVERLAPPING_PROTOCOLS
    return [
        ResultRow(
            curve,
            {x: column[curve.label] for x, column in columns.items() if curve.label in column},
            early_tokens(curve, curves.train_length) if nonoverlapping else None,
        )
        for curve in curves.curves
    ]


def incomparable_lengths(rows: Sequence[ResultRow]) -> list[int]:
    """Return the lengths at which no value is best, because their numbers of tokens differ."""
    lengths = {x for row in rows for x in row.values}
    with_best = {x for row in rows for x, value in row.values.items() if value.best}
    return sorted(int(x) for x in lengths - with_best)


def paired_difference(left: Point, right: Point) -> Difference | None:
    """Return the mean of `left` minus that of `right`, over the seeds that both have.

    If both have losses by block for the same tokens, and enough blocks, the interval comes from the
    bootstrap. Otherwise, it is the t interval over seeds; returns None if there are too few seeds.
    """
    seeds = [seed for seed in left.seeds if seed in right.seeds]
    a, b = left.blocks_of(seeds), right.blocks_of(seeds)
    if a and b and _same_tokens([*a, *b]):
        interval = bootstrap_interval(a, b)
        if interval is not None:
            method = f"{DESCRIPTION}; covers {interval.variation}"
            return Difference(interval.mean, interval.low, interval.high, method)
    if len(seeds) < MIN_SEEDS:
        return None
    interval = band(left.differences(right))
    return Difference(interval.mean, interval.low, interval.high, "t interval over seeds")


def _column(curves: CurveSet, x: float) -> dict[str, TableValue]:
    """Return the values at one length by label."""
    points = {c.label: point for c in curves.curves if (point := c.point_at(x)) is not None}
    shared_seeds = set.intersection(*(set(point.seeds) for point in points.values()))
    means = {n: point.mean_over(shared_seeds or point.seeds) for n, point in points.items()}
    best_label = curves.quantity.choose(means, key=means.__getitem__)
    best = points[best_label]
    comparable = len({point.tokens for point in points.values()}) == 1
    comparable &= not any(point.tokens_differ for point in points.values())
    values = {}
    for label, point in points.items():
        difference = None if point is best else paired_difference(point, best)
        tied = difference is not None and difference.includes_zero
        is_best = comparable and (tied or means[label] == means[best_label])
        values[label] = TableValue(point, is_best, difference)
    return values


def _same_tokens(blocks: Sequence[BlockSums]) -> bool:
    """Return whether all measurements scored the same number of targets in every block."""
    return all(np.array_equal(blocks[0].counts, other.counts) for other in blocks[1:])
