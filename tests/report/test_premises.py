"""Premises decide which claims may hold or fail, and may compare runs with n-gram models."""

import math
from typing import Any

import pytest

from posenc.report.verdicts import reasons

CLAIM = """
- statement: alibi improves
  left: {perplexity: {encoding: alibi, length: 2L}}
  is: below
  right: {perplexity: {encoding: alibi, length: L}}
"""
RISES = """
- statement: alibi rises
  left: {perplexity: {encoding: alibi, length: 2L}}
  is: above
  right: {perplexity: {encoding: alibi, length: L}}
"""
TRIGRAM = """
- statement: alibi is below the trigram
  left: {perplexity: {encoding: alibi, length: L}}
  is: below
  right: {ngram: 3}
"""
SEEDS = (1, 2, 3)


def alibi_runs(tools: Any, train_length: int = 64, trigram: float = 3.5, **row: Any) -> list[Any]:
    """Return runs of three seeds whose loss falls from about 3.0 at L to 2.9 at 2L.

    The loss of the trigram model is about `trigram`, and that of the bigram model is higher.
    """
    runs = []
    for seed in SEEDS:
        run = tools.fake("alibi", train_length, seed)
        run.add_row(train_length, 3.0 + 0.01 * seed, **row).add_row(2 * train_length, 2.9)
        runs.append(run.add_ngram(2, 9.0).add_ngram(3, trigram + 0.02 * seed))
    return runs


def outcomes(verdicts: Any) -> dict[Any, str]:
    return {verdict.train_length: verdict.outcome for verdict in verdicts.claims}


def test_a_claim_is_judged_if_its_premise_holds(tools: Any) -> None:
    for claim, outcome in ((CLAIM, "holds"), (RISES, "fails")):
        verdicts = tools.with_premises(TRIGRAM, claim, alibi_runs(tools))
        assert [premise.outcome for premise in verdicts.premises] == ["holds"]
        assert outcomes(verdicts) == {64: outcome}


@pytest.mark.parametrize("claim", [CLAIM, RISES, CLAIM.replace("alibi", "t5")])
def test_a_claim_neither_holds_nor_fails_if_its_premise_fails(tools: Any, claim: str) -> None:
    verdicts = tools.with_premises(TRIGRAM, claim, alibi_runs(tools, trigram=2.5))
    (verdict,) = verdicts.claims
    assert [premise.outcome for premise in verdicts.premises] == ["fails"]
    assert verdict.outcome == "premise not met"
    assert {judged.outcome for judged in verdict.clauses} == {"premise not met"}
    text = " ".join(reasons(verdict, None))
    difference = f"{100 * math.expm1(3.02 - 2.54):+.2f}%"
    assert all(part in text for part in ("alibi is below the trigram", "fails", difference)), text


def test_a_premise_that_was_not_measured_is_not_met(tools: Any) -> None:
    runs = alibi_runs(tools)
    for run in runs[1:]:
        run.ngrams.clear()
    verdicts = tools.with_premises(TRIGRAM, CLAIM, runs)
    assert verdicts.premises[0].outcome == "not measured"
    assert verdicts.claims[0].outcome == "premise not met"
    assert "not measured" in reasons(verdicts.claims[0], None)[0]


def test_a_premise_applies_to_claims_at_the_same_training_length(tools: Any) -> None:
    runs = [*alibi_runs(tools), *alibi_runs(tools, 128, trigram=2.5)]
    verdicts = tools.with_premises(TRIGRAM, CLAIM, runs)
    assert [premise.outcome for premise in verdicts.premises] == ["holds", "fails"]
    assert outcomes(verdicts) == {64: "holds", 128: "premise not met"}


def test_a_premise_not_judged_at_the_training_length_of_a_claim_still_applies_to_it(
    tools: Any,
) -> None:
    runs = [*alibi_runs(tools, trigram=2.5), *alibi_runs(tools, 128)]
    limited = TRIGRAM + "  where: {train_length: 64}\n"
    verdicts = tools.with_premises(limited, CLAIM, runs)
    assert outcomes(verdicts) == {64: "premise not met", 128: "premise not met"}
    unmeasured = TRIGRAM + "  where: {train_length: {above: 999}}\n"
    verdicts = tools.with_premises(unmeasured, CLAIM, runs)
    assert outcomes(verdicts) == {64: "premise not met", 128: "premise not met"}


def test_a_premise_applies_to_the_training_lengths_of_both_sides(tools: Any) -> None:
    """A claim at 64 whose right side was trained at 128, where the premise fails."""
    runs = [*alibi_runs(tools), *alibi_runs(tools, 128, trigram=2.5)]
    across = """
- statement: short beats long
  where: {train_length: 64}
  left: {perplexity: {encoding: alibi, length: 2L}}
  is: below
  right: {perplexity: {encoding: alibi, length: 2L, train_length: 2L}}
"""
    assert outcomes(tools.with_premises(TRIGRAM, across, runs)) == {64: "premise not met"}
    assert {v.train_length: v.outcome for v in tools.verdicts(across, runs)} == {64: "holds"}


def test_all_premises_must_hold(tools: Any) -> None:
    verdicts = tools.with_premises(TRIGRAM + RISES, CLAIM, alibi_runs(tools))
    assert [premise.outcome for premise in verdicts.premises] == ["holds", "fails"]
    assert verdicts.claims[0].outcome == "premise not met"
    assert [premise.claim.statement for premise in verdicts.claims[0].unmet] == ["alibi rises"]


@pytest.mark.parametrize(("order", "right"), [("2", 9.0), ("3", 3.54), ("best", 3.54)])
def test_a_run_is_compared_with_the_ngram_model_of_the_same_seed(
    tools: Any, order: str, right: float
) -> None:
    """The loss of alibi is 3 + 0.01 seed, and that of the trigram model is 3.5 + 0.02 seed."""
    premise = TRIGRAM.replace("ngram: 3", f"ngram: {order}")
    (verdict,) = tools.verdicts(premise, alibi_runs(tools))
    (clause,) = verdict.clauses
    assert clause.right == pytest.approx(math.exp(right))
    assert clause.left == pytest.approx(math.exp(3.02))
    assert clause.difference.mean == pytest.approx(math.exp(3.02 - right) - 1)
    (loss,) = tools.verdicts(premise.replace("perplexity", "loss"), alibi_runs(tools))
    assert loss.clauses[0].right == pytest.approx(right)


@pytest.mark.parametrize(
    ("changes", "outcome", "reason"),
    [
        ({"order": 5}, "not measured", "orders: 5"),
        ({"data": "beef"}, "not comparable", "beef"),
        ({"split": "test"}, "not comparable", "test"),
        ({"count": 999}, "not comparable", "999"),
    ],
)
def test_an_ngram_model_needs_the_requested_order_and_the_text_of_the_row(
    tools: Any, changes: dict[str, Any], outcome: str, reason: str
) -> None:
    runs = alibi_runs(tools)
    for run in runs:
        run.ngrams[:] = [run.ngrams[1] | changes]
    (verdict,) = tools.verdicts(TRIGRAM, runs)
    assert verdict.outcome == outcome
    assert reason in verdict.clauses[0].reason


@pytest.mark.parametrize(("count", "outcome"), [(1000, "holds"), (100, "not comparable")])
def test_an_ngram_model_is_comparable_only_if_a_protocol_scores_every_token(
    tools: Any, count: int, outcome: str
) -> None:
    runs = alibi_runs(tools, protocol="sliding", stride=8, count=count)
    premise = TRIGRAM + "  where: {protocol: sliding, stride: 8}\n"
    assert tools.outcomes(premise, runs) == {64: outcome}
