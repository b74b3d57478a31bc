"""Bootstrap intervals, compared with loops and with known distributions."""

import math
import random
from collections.abc import Sequence
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.stats import norm, t

from posenc.report.bootstrap import MIN_BLOCKS, bootstrap_interval
from posenc.report.confidence import t_interval
from posenc.runs.loss_arrays import BlockSums

TOKENS = 4096


def blocks_of(losses: Sequence[float], counts: Sequence[int] | None = None) -> BlockSums:
    tokens = np.array(counts or [TOKENS] * len(losses))
    return BlockSums(np.array(losses) * tokens, tokens)


def simulate(
    generator: np.random.Generator, seeds: int, blocks: int, seed_sd: float, block_sd: float
) -> tuple[list[BlockSums], list[BlockSums]]:
    """Return two measurements whose difference has mean 0 and varies by seed and by block.

    The difficulty of a block is the same in both, so it must cancel in the difference.
    """
    difficulty = generator.normal(3, 1, blocks)
    seed_effects = generator.normal(0, seed_sd, seeds)
    block_effects = generator.normal(0, block_sd, blocks)
    right = [blocks_of(difficulty.tolist()) for _ in range(seeds)]
    left = [blocks_of((difficulty + block_effects + effect).tolist()) for effect in seed_effects]
    return left, right


def interval_from_loops(
    left: Sequence[BlockSums], right: Sequence[BlockSums], resamples: int
) -> tuple[float, float]:
    """Return the 95% interval of the difference, with loops and another random generator."""
    random.seed(5)
    seeds, blocks = len(left), len(left[0].sums)
    values: list[float] = []
    for _ in range(resamples):
        chosen = [random.randrange(blocks) for _ in range(blocks)]
        differences = []
        for a, b in zip(left, right, strict=True):
            losses = [
                sum(float(side.sums[i]) for i in chosen) / sum(int(side.counts[i]) for i in chosen)
                for side in (a, b)
            ]
            differences.append(losses[0] - losses[1])
        value = fmean(differences)
        if seeds >= 3:
            value += (
                stdev(differences) / math.sqrt(seeds) * float(t.ppf(random.random(), seeds - 1))
            )
        values.append(value)
    values.sort()
    return values[round(0.025 * resamples)], values[round(0.975 * resamples)]


@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_the_interval_of_a_difference_agrees_with_a_bootstrap_in_loops(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    counts = generator.integers(1, TOKENS, 25).tolist()
    left = [blocks_of(generator.normal(3, 0.3, 25).tolist(), counts) for _ in range(seeds)]
    right = [blocks_of(generator.normal(3.1, 0.3, 25).tolist(), counts) for _ in range(seeds)]
    interval = bootstrap_interval(left, right)
    assert interval is not None
    low, high = interval_from_loops(left, right, 6000)
    width = high - low
    assert interval.low == pytest.approx(low, abs=0.06 * width)
    assert interval.high == pytest.approx(high, abs=0.06 * width)
    expected = [
        a.sums.sum() / a.counts.sum() - b.sums.sum() / b.counts.sum()
        for a, b in zip(left, right, strict=True)
    ]
    assert interval.mean == pytest.approx(fmean(expected), rel=1e-12)
    assert interval.num_seeds == seeds
    assert interval.variation == ("text and seeds" if seeds >= 3 else "text")


@pytest.mark.parametrize(
    ("seeds", "seed_sd", "block_sd"),
    [(3, 0.0, 0.5), (3, 0.02, 0.0), (3, 0.05, 0.3), (5, 0.02, 0.2), (1, 0.0, 0.3)],
)
def test_about_95_percent_of_intervals_contain_the_true_difference(
    seeds: int, seed_sd: float, block_sd: float
) -> None:
    generator = np.random.default_rng(7)
    intervals = [
        bootstrap_interval(*simulate(generator, seeds, 40, seed_sd, block_sd)) for _ in range(200)
    ]
    covered = [
        interval is not None and interval.low <= 0 <= interval.high for interval in intervals
    ]
    assert 0.9 <= fmean(covered) <= 0.99


def test_without_variation_between_blocks_the_interval_is_the_t_interval_over_seeds() -> None:
    differences = [0.1, 0.15, 0.05, 0.12]
    right = [blocks_of(np.linspace(2, 5, 20).tolist()) for _ in differences]
    left = [blocks_of((np.linspace(2, 5, 20) + d).tolist()) for d in differences]
    interval, expected = bootstrap_interval(left, right), t_interval(differences, 0.95)
    assert interval is not None and expected.low is not None and expected.high is not None
    assert interval.mean == pytest.approx(expected.mean)
    assert interval.low == pytest.approx(expected.low, abs=0.001)
    assert interval.high == pytest.approx(expected.high, abs=0.001)


def test_the_interval_of_one_seed_is_the_normal_approximation_over_blocks() -> None:
    losses = np.random.default_rng(3).normal(4, 0.5, 400)
    interval = bootstrap_interval([blocks_of(losses.tolist())])
    half_width = norm.ppf(0.975) * losses.std() / math.sqrt(400)
    assert interval is not None and interval.mean == pytest.approx(losses.mean())
    assert interval.low == pytest.approx(losses.mean() - half_width, abs=0.1 * half_width)
    assert interval.high == pytest.approx(losses.mean() + half_width, abs=0.1 * half_width)


def test_the_difficulty_of_the_text_cancels_in_a_difference() -> None:
    losses = np.random.default_rng(3).normal(4, 0.5, 50)
    left, right = [blocks_of((losses - 0.01).tolist())], [blocks_of(losses.tolist())]
    difference, single = bootstrap_interval(left, right), bootstrap_interval(left)
    assert difference is not None and single is not None
    assert difference.high - difference.low < 1e-9 < 0.1 < single.high - single.low
    assert difference.mean == pytest.approx(-0.01) and difference.high < 0


def test_blocks_without_scored_targets_are_ignored() -> None:
    losses = np.random.default_rng(2).normal(3, 0.3, 15).tolist()
    sparse = [value for loss in losses for value in (loss, 0.0)]
    dense, with_gaps = blocks_of(losses), blocks_of(sparse, [TOKENS, 0] * 15)
    assert bootstrap_interval([with_gaps]) == bootstrap_interval([dense])


def test_too_few_blocks_have_no_interval() -> None:
    few = [blocks_of([3.0, 4.0] * ((MIN_BLOCKS - 1) // 2))] * 3
    assert bootstrap_interval(few) is None
