"""Changes, contrasts, fractions of published changes, and trends, compared with numpy and scipy."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

SEEDS = (1, 2, 3, 4)
LOSSES = {
    ("nonoverlapping", 64): [3.00, 3.10, 3.20, 3.05],
    ("nonoverlapping", 128): [2.91, 3.00, 3.09, 2.95],
    ("nonoverlapping", 256): [2.86, 2.94, 3.05, 2.90],
    ("fixed_target", 64): [2.80, 2.90, 3.00, 2.85],
    ("fixed_target", 128): [2.79, 2.885, 2.99, 2.835],
}
GAIN = np.subtract(LOSSES["nonoverlapping", 128], LOSSES["nonoverlapping", 64])
FIXED_GAIN = np.subtract(LOSSES["fixed_target", 128], LOSSES["fixed_target", 64])


def runs_of(tools: Any, encoding: str = "alibi", shift: float = 0.0, **row: Any) -> list[Any]:
    """Return runs of four seeds with the losses above; the protocols score different tokens."""
    runs = []
    for i, seed in enumerate(SEEDS):
        run = tools.fake(encoding, 64, seed)
        for (protocol, length), losses in LOSSES.items():
            keys = {"stride": 8, "count": 100, "tokens_hash": "f"} if protocol[0] == "f" else {}
            run.add_row(length, losses[i] + shift, protocol=protocol, **(keys | row))
        runs.append(run)
    return runs


def t_interval_of(numbers: Any, confidence: float = 0.95) -> tuple[float, float]:
    error = stats.sem(numbers)
    return stats.t.interval(confidence, len(numbers) - 1, loc=np.mean(numbers), scale=error)


def judge_clause(tools: Any, claim: str, runs: list[Any]) -> Any:
    (verdict,) = tools.verdicts(claim, runs)
    (clause,) = verdict.clauses
    return clause


CHANGE = """
- statement: alibi gains at least 5% by 2L
  left: {perplexity: {encoding: alibi, length: 2L}, change_from: {length: L}}
  is: below
  right: -0.05
"""


def test_a_change_is_relative_to_the_baseline_of_the_same_seed(tools: Any) -> None:
    clause = judge_clause(tools, CHANGE, runs_of(tools))
    assert clause.left == pytest.approx(math.exp(GAIN.mean()) - 1)
    assert clause.right == pytest.approx(-0.05)
    low, high = t_interval_of(GAIN - math.log(0.95))
    assert clause.difference.low == pytest.approx(math.expm1(low))
    assert clause.difference.high == pytest.approx(math.expm1(high))
    assert clause.outcome == "holds"
    assert judge_clause(tools, CHANGE.replace("-0.05", "-0.2"), runs_of(tools)).outcome == "fails"


def test_a_change_of_a_loss_is_a_difference(tools: Any) -> None:
    clause = judge_clause(tools, CHANGE.replace("perplexity", "loss"), runs_of(tools))
    assert clause.left == pytest.approx(GAIN.mean())
    assert clause.difference.mean == pytest.approx(GAIN.mean() + 0.05)


CONTRAST = """
- statement: with fixed targets, less than half of the gain remains
  where: {encoding: alibi, length: 2L}
  left: {perplexity: {protocol: fixed_target, stride: 8}, change_from: {length: L}}
  is: above
  right: {perplexity: {}, change_from: {length: L}, times: 0.5}
"""


def test_a_contrast_compares_two_changes_seed_by_seed(tools: Any) -> None:
    """The two protocols score different tokens, but each change is within one of them."""
    clause = judge_clause(tools, CONTRAST, runs_of(tools))
    contrast = FIXED_GAIN - 0.5 * GAIN
    low, high = t_interval_of(contrast)
    assert (low > 0) and clause.outcome == "holds"
    assert clause.left == pytest.approx(math.expm1(FIXED_GAIN.mean()))
    assert clause.right == pytest.approx(math.expm1(0.5 * GAIN.mean()))
    assert clause.difference.mean == pytest.approx(math.expm1(contrast.mean()))
    assert clause.difference.low == pytest.approx(math.expm1(low))
    assert clause.difference.high == pytest.approx(math.expm1(high))
    reversed_claim = CONTRAST.replace("is: above", "is: below")
    assert judge_clause(tools, reversed_claim, runs_of(tools)).outcome == "fails"


def test_changes_of_two_encodings_must_score_the_same_tokens(tools: Any) -> None:
    claim = """
- statement: the gains are equal
  left: {perplexity: {encoding: alibi, length: 2L}, change_from: {length: L}}
  is: equal
  right: {perplexity: {encoding: rope, length: 2L}, change_from: {length: L}}
  margin: 0.01
"""
    alibi = runs_of(tools)
    assert judge_clause(tools, claim, [*alibi, *runs_of(tools, "rope", 0.7)]).outcome == "holds"
    other = runs_of(tools, "rope", 0.7, tokens_hash="b")
    assert judge_clause(tools, claim, [*alibi, *other]).outcome == "not comparable"


def test_a_change_to_an_evaluation_that_a_budget_cut_short_is_not_comparable(tools: Any) -> None:
    runs = runs_of(tools)
    for run in runs:
        for row in run.rows:
            if row["length"] == 128:
                row.update(count=500, full_count=1000, tokens_hash="cut")
    for claim in (CHANGE, CONTRAST):
        assert judge_clause(tools, claim, runs).outcome == "not comparable"


FRACTION = """
- statement: the gain is at least half of the published one
  left:
    perplexity: {encoding: alibi, length: 2L}
    change_from: {length: L}
    fraction_of_published: [18.73, 19.73]
  is: at_least
  right: 0.5
  margin: 0.1
"""


def test_a_fraction_of_a_published_change_is_a_ratio_of_log_ratios(tools: Any) -> None:
    clause = judge_clause(tools, FRACTION, runs_of(tools))
    fractions = GAIN / math.log(18.73 / 19.73)
    assert clause.left == pytest.approx(fractions.mean())
    low, high = t_interval_of(fractions - 0.5)
    assert clause.difference.low == pytest.approx(low)
    assert clause.difference.high == pytest.approx(high)
    assert clause.outcome == "holds" and low > -0.1
    too_large = FRACTION.replace("right: 0.5", "right: 9")
    assert judge_clause(tools, too_large, runs_of(tools)).outcome == "fails"


def test_a_fraction_of_a_published_difference_is_a_ratio_of_differences(tools: Any) -> None:
    claim = FRACTION.replace("perplexity", "loss").replace("[18.73, 19.73]", "[2.8, 3.0]")
    assert judge_clause(tools, claim, runs_of(tools)).left == pytest.approx(GAIN.mean() / -0.2)


TREND = """
- statement: perplexity falls with the length
  left: {perplexity: {encoding: alibi, length: [L, 2L, 256]}, trend: length}
  is: below
  right: 0
"""


def test_a_trend_over_length_is_a_slope_per_seed(tools: Any) -> None:
    losses = np.array([LOSSES["nonoverlapping", n] for n in (64, 128, 256)])
    slopes = np.polyfit([6.0, 7.0, 8.0], losses, 1)[0]
    clause = judge_clause(tools, TREND, runs_of(tools))
    assert clause.left == pytest.approx(slopes.mean()) and clause.right == 0
    low, high = t_interval_of(slopes)
    assert clause.difference.low == pytest.approx(low)
    assert clause.difference.high == pytest.approx(high)
    assert clause.outcome == "holds"
    assert judge_clause(tools, TREND.replace("below", "above"), runs_of(tools)).outcome == "fails"


def test_a_trend_can_be_compared_with_a_multiple_of_another(tools: Any) -> None:
    right = "{perplexity: {encoding: rope, length: [L, 2L, 256]}, trend: length, times: 2}"
    runs = [*runs_of(tools), *runs_of(tools, "rope")]
    clause = judge_clause(tools, TREND.replace("right: 0", f"right: {right}"), runs)
    assert clause.right == pytest.approx(2 * clause.left)
    assert clause.outcome == "fails"


def test_lengths_with_the_same_number_of_tokens_have_no_trend(tools: Any) -> None:
    clause = judge_clause(tools, TREND.replace("[L, 2L, 256]", "[L, 64]"), runs_of(tools))
    assert clause.outcome == "not comparable" and "64 tokens" in clause.reason


def test_a_trend_with_a_length_that_was_not_evaluated_is_not_measured(tools: Any) -> None:
    clause = judge_clause(tools, TREND.replace("256", "8L"), runs_of(tools))
    assert clause.outcome == "not measured" and "evaluation.lengths=[512]" in clause.reason


BY_BASE = """
- statement: larger bases are better
  left:
    perplexity: {encoding: rope, length: L, encoding.spectrum.base: [100, 10000, 500000]}
    trend: encoding.spectrum.base
  is: below
  right: -0.1
"""


def base_sweep(tools: Any, *, skip: int | None = None) -> tuple[list[Any], Any]:
    """Return runs with three bases, and their losses by base and seed."""
    generator = np.random.default_rng(1)
    losses = np.array([[3.0], [2.6], [2.2]]) + generator.normal(0, 0.01, (3, 3))
    runs = []
    for base, row in zip((100, 10000, 500000), losses, strict=True):
        for seed, loss in zip((1, 2, 3), row, strict=True):
            run = tools.fake("rope", 64, seed, encoding={"spectrum": {"base": base}})
            runs += [run.add_row(64, float(loss))] if base != skip else []
    return runs, losses


def test_a_trend_over_a_parameter_is_fitted_across_runs_of_the_same_seed(tools: Any) -> None:
    runs, losses = base_sweep(tools)
    slopes = np.polyfit(np.log10([1e2, 1e4, 5e5]), losses, 1)[0]
    clause = judge_clause(tools, BY_BASE, runs)
    assert clause.left == pytest.approx(slopes.mean())
    assert clause.right == pytest.approx(-0.1)
    low, high = t_interval_of(slopes + 0.1)
    assert clause.difference.low == pytest.approx(low)
    assert clause.difference.high == pytest.approx(high)
    assert clause.outcome == "holds"


def test_a_trend_over_a_parameter_needs_a_run_with_each_value(tools: Any) -> None:
    runs, _ = base_sweep(tools, skip=10000)
    clause = judge_clause(tools, BY_BASE, runs)
    assert clause.outcome == "not measured"
    assert "encoding.spectrum.base=10000" in clause.reason


def test_the_text_of_a_clause_names_both_sides(tools: Any) -> None:
    """The text appears below the statement in every report."""
    parts = {
        CHANGE: ("change", "2L", "-5%"),
        CONTRAST: ("0.5 times", "fixed_target", "change"),
        FRACTION: ("18.73", "19.73", "margin 0.1"),
        TREND: ("slope of log perplexity", "log2 length", "L, 2L, 256"),
        BY_BASE: ("log10 base", "100, 10000, 500000"),
    }
    for claim, words in parts.items():
        text = str(tools.verdicts(claim, [])[0].clauses[0].clause)
        assert all(word in text for word in words), text
