"""Intervals compared with hand calculations, outcomes at the margin, and the effect of pairing."""

import math
from typing import Any

import pytest
from scipy.stats import ttest_ind

from posenc.report.confidence import band, describe_bands, t_interval
from posenc.report.outcome import compare

BELOW = """
- statement: a is below b
  left: {loss: {encoding: alibi, length: L}}
  is: below
  right: {loss: {encoding: rope, length: L}}
"""


def test_a_t_interval_equals_a_hand_calculation() -> None:
    """Mean 2.5, standard error sqrt(5/3) / sqrt(4), and t(0.975, 3) = 3.182446 from a table."""
    interval = t_interval([1.0, 2.0, 3.0, 4.0], 0.95)
    assert interval.mean == 2.5
    assert interval.low == pytest.approx(2.5 - 3.182446 * math.sqrt(5 / 3) / 2, abs=1e-6)
    assert interval.high == pytest.approx(2.5 + 3.182446 * math.sqrt(5 / 3) / 2, abs=1e-6)
    narrower = t_interval([1.0, 2.0, 3.0, 4.0], 0.5)  # t(0.75, 3) = 0.764892
    assert narrower.high == pytest.approx(2.5 + 0.764892 * math.sqrt(5 / 3) / 2, abs=1e-6)


def test_one_number_has_no_interval_and_equal_numbers_have_one_of_width_zero() -> None:
    one = t_interval([2.0], 0.95)
    assert (one.mean, one.low, one.high) == (2.0, None, None)
    equal = t_interval([2.0, 2.0, 2.0], 0.95)
    assert (equal.low, equal.high) == (2.0, 2.0)


def test_the_band_of_three_seeds_is_a_t_interval_and_that_of_two_is_their_range() -> None:
    three, two = band([3.0, 3.1, 3.3]), band([3.0, 3.4])
    interval = t_interval([3.0, 3.1, 3.3], 0.95)
    assert (three.low, three.high) == (interval.low, interval.high)
    assert (two.low, two.high) == (3.0, 3.4)
    assert "interval" in three.description and "interval" not in two.description


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((1, 1), ("One seed",)),
        ((2,), ("2 seeds", "lowest to the highest")),
        ((1, 3), ("1-3 seeds", "95% t interval")),
        ((2, 3), ("95% t interval", "3 seeds or more", "lowest to the highest")),
    ],
)
def test_a_caption_describes_its_bands(counts: tuple[int, ...], words: tuple[str, ...]) -> None:
    text = describe_bands(band([1.0] * count) for count in counts)
    assert all(word in text for word in words)
    assert ("interval" in text) == (max(counts) > 2)


def test_a_caption_says_whether_the_mean_is_geometric() -> None:
    bands = [band([1.0, 2.0, 3.0])]
    assert describe_bands(bands, geometric=True).startswith("Geometric mean of 3 seeds")
    assert describe_bands(bands).startswith("Mean of 3 seeds")


@pytest.mark.parametrize(
    ("comparison", "holds", "fails", "undecided"),
    [
        ("below", (-3, -1.1), (-1, 2), (-1.2, -0.8)),
        ("above", (1.1, 3), (-2, 1), (0.8, 1.2)),
        ("at_most", (-3, 1), (1.1, 2), (0.8, 1.2)),
        ("at_least", (-1, 3), (-2, -1.1), (-1.2, -0.8)),
        ("equal", (-1, 1), (1.1, 2), (0.8, 1.2)),
        ("equal", (-0.1, 0.1), (-2, -1.1), (-1.2, 1.2)),
    ],
)
def test_an_outcome_depends_on_where_the_interval_lies_relative_to_the_margin(
    comparison: str,
    holds: tuple[float, float],
    fails: tuple[float, float],
    undecided: tuple[float, float],
) -> None:
    assert compare(comparison, *holds, 1) == "holds"
    assert compare(comparison, *fails, 1) == "fails"
    assert compare(comparison, *undecided, 1) == "undecided"


def test_pairing_decides_what_seed_variation_would_hide(tools: Any) -> None:
    """Seeds differ by about 0.1 nats; with the same seed, encodings differ by about 0.01."""
    alibi = {seed: 3.0 + 0.1 * seed + 0.0005 * seed**2 for seed in (1, 2, 3, 4)}
    rope = {seed: 3.01 + 0.1 * seed + 0.0004 * seed**2 for seed in (1, 2, 3, 4)}
    runs = [tools.fake("alibi", 64, seed).add_row(64, loss) for seed, loss in alibi.items()]
    runs += [tools.fake("rope", 64, seed).add_row(64, loss) for seed, loss in rope.items()]
    unpaired = ttest_ind(list(alibi.values()), list(rope.values()), equal_var=False)
    interval = unpaired.confidence_interval(0.95)
    assert interval.low < 0 < interval.high
    assert compare("below", interval.low, interval.high, 0) == "undecided"
    assert tools.outcomes(BELOW, runs) == {64: "holds"}
    (verdict,) = tools.verdicts(BELOW, runs)
    differences = [alibi[seed] - rope[seed] for seed in alibi]
    assert verdict.clauses[0].difference == t_interval(differences, 0.95)


def test_the_mean_of_ratios_is_geometric(tools: Any) -> None:
    claim = BELOW.replace("loss:", "perplexity:")
    losses = {1: (2.0, 2.1), 2: (3.0, 3.2), 3: (2.5, 2.8)}
    runs = [tools.fake("alibi", 64, seed).add_row(64, a) for seed, (a, _) in losses.items()]
    runs += [tools.fake("rope", 64, seed).add_row(64, b) for seed, (_, b) in losses.items()]
    (clause,) = tools.verdicts(claim, runs)[0].clauses
    assert clause.left == pytest.approx(math.exp(2.5))
    assert clause.difference.mean == pytest.approx(math.exp(-0.2) - 1)
    # differences -0.1, -0.2, -0.3: standard deviation 0.1, t(0.975, 2) = 4.302653
    half_width = 4.302653 * 0.1 / math.sqrt(3)
    assert clause.difference.low == pytest.approx(math.exp(-0.2 - half_width) - 1, abs=1e-6)
    assert clause.difference.high == pytest.approx(math.exp(-0.2 + half_width) - 1, abs=1e-6)
    assert clause.outcome == "undecided"  # the upper end, -0.2 + 0.248, is above 0
