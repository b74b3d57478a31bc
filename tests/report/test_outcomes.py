"""How outcomes are combined and counted, and verdicts compared with t tests."""

import math
from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any, get_args

import numpy as np
import pytest
from scipy import stats

from posenc.report.outcome import PRECEDENCE, Outcome, combine
from posenc.report.verdicts import summary

CLAIM = """
- statement: alibi against rope
  left: {{perplexity: {{encoding: alibi, length: L}}}}
  is: {comparison}
  right: {{perplexity: {{encoding: rope, length: L}}}}
  margin: 0.02
"""


def paired_runs(tools: Any, differences: Sequence[float], train_length: int = 64) -> list[Any]:
    """Return runs of alibi and rope, with one seed for each difference of their losses."""
    runs = []
    for seed, difference in enumerate(differences, 1):
        for encoding, loss in (("alibi", 3.0 + difference), ("rope", 3.0)):
            run = tools.fake(encoding, train_length, seed)
            runs.append(run.add_row(train_length, loss + 0.3 * seed))
    return runs


def expected_outcome(comparison: str, differences: Sequence[float]) -> str:
    """Return the outcome according to p-values of t tests against the margins."""
    margin, alpha = math.log(1.02), 0.05 if comparison == "equal" else 0.025

    def above(limit: float) -> bool:
        return stats.ttest_1samp(differences, limit, alternative="greater").pvalue < alpha

    def below(limit: float) -> bool:
        return stats.ttest_1samp(differences, limit, alternative="less").pvalue < alpha

    holds, fails = {
        "below": (below(-margin), above(-margin)),
        "above": (above(margin), below(margin)),
        "at_most": (below(margin), above(margin)),
        "at_least": (above(-margin), below(-margin)),
        "equal": (above(-margin) and below(margin), above(margin) or below(-margin)),
    }[comparison]
    return "holds" if holds else "fails" if fails else "undecided"


@pytest.mark.parametrize("comparison", ["below", "above", "at_most", "at_least", "equal"])
def test_verdicts_agree_with_t_tests_against_the_margins(tools: Any, comparison: str) -> None:
    generator = np.random.default_rng(0)
    outcomes = set()
    for mean, spread, seeds in product((-0.1, -0.03, 0.0, 0.03, 0.1), (0.002, 0.012), (3, 5)):
        differences = generator.normal(mean, spread, seeds).tolist()
        expected = expected_outcome(comparison, differences)
        claim = CLAIM.format(comparison=comparison)
        assert tools.outcomes(claim, paired_runs(tools, differences)) == {64: expected}
        outcomes.add(expected)
    assert outcomes == {"holds", "fails", "undecided"}


def test_equality_is_two_tests_at_5_percent_and_shows_the_90_percent_interval(tools: Any) -> None:
    """The 90% interval of the differences lies within margins of 2%, the 95% interval does not."""
    differences = [-0.005, 0.006, 0.012]
    center, error = fmean(differences), stdev(differences) / math.sqrt(3)
    assert center + 2.919986 * error < math.log(1.02) < center + 4.302653 * error
    (verdict,) = tools.verdicts(CLAIM.format(comparison="equal"), paired_runs(tools, differences))
    (clause,) = verdict.clauses
    assert verdict.outcome == "holds"
    assert clause.difference.low == pytest.approx(math.expm1(center - 2.919986 * error), abs=1e-7)
    assert clause.difference.high == pytest.approx(math.expm1(center + 2.919986 * error), abs=1e-7)
    assert clause.clause.interval_confidence == pytest.approx(0.9)
    at_most = CLAIM.format(comparison="at_most")
    assert tools.outcomes(at_most, paired_runs(tools, differences)) == {64: "undecided"}


def test_confidence_changes_both_tests_of_equality(tools: Any) -> None:
    claim = CLAIM.format(comparison="equal") + "  confidence: 0.975\n"
    assert tools.outcomes(claim, paired_runs(tools, [-0.005, 0.006, 0.012])) == {64: "undecided"}


@pytest.mark.parametrize(
    ("outcomes", "combined"),
    [
        (("holds", "holds"), "holds"),
        (("holds", "fails", "not comparable"), "fails"),
        (("holds", "undecided"), "undecided"),
        (("undecided", "too few seeds"), "too few seeds"),
        (("too few seeds", "not measured", "holds"), "not measured"),
        (("not measured", "not comparable"), "not comparable"),
        (("not comparable", "premise not met"), "premise not met"),
        (("premise not met", "fails"), "fails"),
    ],
)
def test_the_combined_outcome_fails_if_any_part_fails_and_holds_if_all_hold(
    outcomes: tuple[Outcome, ...], combined: Outcome
) -> None:
    assert combine(outcomes) == combine(reversed(outcomes)) == combined


def test_every_outcome_has_a_place_in_the_order() -> None:
    assert sorted(PRECEDENCE) == sorted(get_args(Outcome))


TWO_CLAUSES = """
- statement: both
  where: {{length: L}}
  all:
    - {{left: {{loss: {{encoding: alibi}}}}, is: {first}, right: {{loss: {{encoding: rope}}}}}}
    - {{left: {{loss: {{encoding: alibi}}}}, is: above, right: {{loss: {{encoding: {other}}}}}}}
"""


@pytest.mark.parametrize(
    ("first", "other", "outcome"),
    [
        ("above", "rope", "holds"),
        ("below", "rope", "fails"),
        ("below", "t5", "fails"),
        ("above", "t5", "not measured"),
    ],
)
def test_the_outcome_of_a_claim_combines_those_of_its_clauses(
    tools: Any, first: str, other: str, outcome: str
) -> None:
    runs = paired_runs(tools, [0.1, 0.11, 0.12])
    assert tools.outcomes(TWO_CLAUSES.format(first=first, other=other), runs) == {64: outcome}


@pytest.mark.parametrize(
    ("at_64", "at_128", "words"),
    [
        ([-0.1, -0.11, -0.12], [-0.1, -0.11, -0.12], {"1 holds"}),
        ([0.1, 0.11, 0.12], [0.1, 0.11, 0.12], {"1 fails"}),
        ([-0.1, -0.11, -0.12], [0.1, 0.11, 0.12], {"1 fails", "1 at some"}),
        ([-0.1, -0.11, -0.12], [-0.1, -0.11], {"1 with too few seeds", "1 at some"}),
        ([-0.1, 0.11, -0.12], [-0.1, 0.11, -0.12], {"1 undecided"}),
    ],
)
def test_a_claim_counts_once_whatever_the_number_of_training_lengths(
    tools: Any, at_64: list[float], at_128: list[float], words: set[str]
) -> None:
    runs = [*paired_runs(tools, at_64), *paired_runs(tools, at_128, 128)]
    verdicts = tools.verdicts(CLAIM.format(comparison="below"), runs)
    assert [verdict.train_length for verdict in verdicts] == [64, 128]
    text = summary(verdicts)
    assert all(word in text for word in words), text
    assert ("at some" in text) == ("1 at some" in words)


def test_claims_with_the_same_statement_count_separately(tools: Any) -> None:
    claims = CLAIM.format(comparison="below") + CLAIM.format(comparison="above")
    text = summary(tools.verdicts(claims, paired_runs(tools, [0.1, 0.11, 0.12])))
    assert text == "1 holds, 1 fails"
