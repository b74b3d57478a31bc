"""The fraction of the gain on longer windows that comes from having fewer early tokens.

Tokens at the beginning of a window have little context. Longer windows have a smaller fraction of
them, so the mean loss falls even if a model makes no use of context beyond the training length L
(the early-token curse: Press et al. 2022, appendix B). Let e be the loss at the end of windows of L
tokens. If every position from L on had the loss e, the loss in windows of T tokens would be

    loss(T) = e + L (loss(L) - e) / T,

of the form a + S / T. See docs/report.md for what this does and does not show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression

from posenc.report.confidence import Band, band
from posenc.report.curve_set import Curve

MIN_LENGTHS = 3
"""With fewer lengths, a line in 1/T is not fitted."""


@dataclass(frozen=True)
class EarlyTokens:
    """The fitted S (`slope`) in nats per window, and the fraction of the gain due to early tokens.

    `fraction` is None if the curve has no loss at the training length, if the losses by position
    were not saved, or if any seed has no gain.
    """

    slope: Band
    fraction: Band | None


def early_tokens(curve: Curve, train_length: int) -> EarlyTokens | None:
    """Return the early-token statistics of a curve of loss by length; None with too few lengths.

    They are computed for each seed that was evaluated at all lengths from the training length on.
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
        return EarlyTokens(slope, None)
    ends = [reference.end_losses[reference.seeds.index(seed)] for seed in seeds]
    fractions = [
        explained_fraction(losses, train_length, end)
        for losses, end in zip(by_seed, ends, strict=True)
    ]
    known = [fraction for fraction in fractions if fraction is not None]
    return EarlyTokens(slope, band(known) if len(known) == len(seeds) else None)


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
