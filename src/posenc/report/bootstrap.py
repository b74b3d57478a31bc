"""Confidence intervals over text and seeds: a paired bootstrap, combined with Student's t.

A resample draws as many blocks of text as there are, with replacement, and uses the same blocks for
all measurements and seeds. The difficulty of a block therefore cancels in a difference of losses.

Drawing seeds in the same way would underestimate the variation between a few seeds: a 95% interval
for the mean of three values would contain the true mean in only about 75% of cases. Instead, each
resample adds t * s / sqrt(n) to the mean over the n seeds, where s is their standard deviation and
t is drawn from Student's t distribution with n - 1 degrees of freedom. If all blocks were alike,
the result would be the t interval over seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from posenc.report.confidence import CONFIDENCE, MIN_SEEDS
from posenc.runs.loss_arrays import BlockSums

RESAMPLES = 4000
RANDOM_SEED = 20220427
MIN_BLOCKS = 10
"""With fewer blocks of text, there is no interval."""
DESCRIPTION = (
    f"paired bootstrap, {RESAMPLES:,} resamples of blocks of text, random seed {RANDOM_SEED}"
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BootstrapInterval:
    """A mean over `num_seeds` seeds and its interval.

    `variation` names the sources of variation that the interval includes: only "text" if there are
    too few seeds to estimate the variation between seeds.
    """

    mean: float
    low: float
    high: float
    num_seeds: int

    @property
    def variation(self) -> Literal["text", "text and seeds"]:
        return "text" if self.num_seeds < MIN_SEEDS else "text and seeds"


def bootstrap_interval(
    left: Sequence[BlockSums], right: Sequence[BlockSums] = ()
) -> BootstrapInterval | None:
    """Return the interval for the mean loss of `left`, minus that of `right`, in nats per token.

    `left[i]` and `right[i]` belong to the same seed and split; without `right`, nothing is
    subtracted. Returns None if either scored targets in fewer than MIN_BLOCKS blocks. The result is
    deterministic.
    """
    sides = [left, right] if right else [left]
    sums = np.array([[blocks.sums for blocks in side] for side in sides])  # [sides, seeds, blocks]
    counts = np.array([[blocks.counts for blocks in side] for side in sides])
    used = counts.any(axis=(0, 1))
    if (counts > 0).sum(axis=-1).min() < MIN_BLOCKS:
        return None
    weights = _block_weights(int(used.sum()))
    per_seed = _mean_losses(sums[..., used], counts[..., used], weights)  # [resamples, seeds]
    original = _mean_losses(sums, counts, np.ones((1, sums.shape[-1])))
    num_seeds = sums.shape[1]
    means = per_seed.mean(axis=1)
    if num_seeds >= MIN_SEEDS:
        deviations = per_seed.std(axis=1, ddof=1)
        means = means + deviations / np.sqrt(num_seeds) * _t_values(num_seeds - 1)
    low, high = np.nanquantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return BootstrapInterval(float(original.mean()), float(low), float(high), num_seeds)


def _mean_losses(sums: Array, counts: NDArray[Any], weights: Array) -> Array:
    """Return the mean losses [resamples, seeds], or their differences if there are two sides.

    `weights` [resamples, blocks] weight the blocks.
    """
    with np.errstate(invalid="ignore"):  # NaN if a resample has no scored target
        losses = (sums @ weights.T) / (counts @ weights.T)
    first, *second = losses.transpose(0, 2, 1)
    return first - second[0] if second else first


@lru_cache(maxsize=8)
def _block_weights(num_blocks: int) -> Array:
    """Return how often each resample contains each block, as an array [RESAMPLES, num_blocks]."""
    generator = np.random.default_rng(RANDOM_SEED)
    uniform = np.full(num_blocks, 1 / num_blocks)
    return generator.multinomial(num_blocks, uniform, size=RESAMPLES).astype(np.float64)


@lru_cache(maxsize=8)
def _t_values(df: int) -> Array:
    """Return the quantiles of Student's t distribution at RESAMPLES evenly spaced probabilities.

    They are in random order.
    """
    quantiles = stdtrit(df, (np.arange(RESAMPLES) + 0.5) / RESAMPLES)
    return np.random.default_rng(RANDOM_SEED + 1).permutation(quantiles)
