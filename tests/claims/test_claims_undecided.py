"""What keeps a claim from being decided, and what is said about it."""

import shlex
from typing import Any

import pytest

CLAIM = """
- says: a is below b
  left: {perplexity: {encoding: alibi, length: L}}
  is: below
  right: {perplexity: {encoding: rope, length: L}}
"""


def sides(tools: Any, seeds: tuple[int, ...] = (1, 2, 3), **rope: Any) -> list[Any]:
    runs = [tools.fake("alibi", 64, seed).read(64, 3.0 + seed) for seed in seeds]
    return runs + [tools.fake("rope", 64, seed).read(64, 4.0 + seed, **rope) for seed in seeds]


def undecided(tools: Any, runs: list[Any], claim: str = CLAIM, **of: Any) -> str:
    """Why the one comparison of a claim is undecided."""
    (verdict,) = tools.verdicts(claim, runs, **of)
    assert verdict.outcome == "undecided"
    (finding,) = verdict.findings
    return finding.why


def test_with_three_seeds_the_same_claim_is_decided(tools: Any) -> None:
    assert tools.outcomes(CLAIM, sides(tools)) == {64: "holds"}


def test_two_seeds_are_too_few_however_far_apart_the_sides_are(tools: Any) -> None:
    why = undecided(tools, sides(tools, (1, 7)), command="posenc train name=e seed=1,7 size=laptop")
    assert why == "2 of 3 seeds that both sides need; `posenc train name=e size=laptop seed=1,2,7`"
    (verdict,) = tools.verdicts(CLAIM, sides(tools, (1, 7)))
    assert verdict.findings[0].seeds == (1, 7) and verdict.findings[0].left is not None


def test_seeds_count_where_both_sides_have_them(tools: Any) -> None:
    runs = sides(tools, (1, 2, 3))
    runs[0].config["seed"] = 9
    assert undecided(tools, runs).startswith("2 of 3 seeds")


def test_an_interval_across_the_margin(tools: Any) -> None:
    runs = [tools.fake("alibi", 64, seed).read(64, 3 + noise) for seed, noise in NOISE.items()]
    runs += [tools.fake("rope", 64, seed).read(64, 3.0) for seed in NOISE]
    assert "across the margin" in undecided(tools, runs)


NOISE = {1: 0.1, 2: -0.1, 3: 0.02}


def test_a_run_that_is_not_finished_names_the_command(tools: Any) -> None:
    runs = sides(tools)
    runs[1].rows.clear()
    assert undecided(tools, runs) == "alibi-L64-s2 is not finished: `posenc train experiment=e`"


def test_runs_that_are_not_there_are_asked_for(tools: Any) -> None:
    found = undecided(tools, sides(tools)[:3])
    assert "no run for perplexity of rope at L" in found
    wanted = "posenc train experiment=e encoding=rope train_length=64 seed=1,2,3"
    assert f"`{wanted}`" in found


def test_a_length_that_was_not_measured_is_asked_for(tools: Any) -> None:
    claim = CLAIM.replace("rope, length: L", "rope, length: 4L")
    found = undecided(tools, sides(tools), claim)
    assert "run=outputs/e/rope-L64-s1" in found and "evaluation.lengths=[256]" in found


def test_a_measurement_is_asked_for_with_its_knob_its_exchange_and_its_split(tools: Any) -> None:
    rows = "protocol: sliding, stride: 8, swap: yarn factor=4, split: test"
    claim = CLAIM.replace("encoding: alibi", f"encoding: alibi, {rows}")
    found = undecided(tools, sides(tools), claim)
    words = shlex.split(found.split("`")[1])
    assert words[2:] == [
        "run=outputs/e/alibi-L64-s1",
        "evaluation.protocols=[sliding]",
        "evaluation.lengths=[64]",
        "evaluation.stride=8",
        "evaluation.split=test",
        "evaluation.swaps=['yarn factor=4']",
    ]


def test_a_training_length_that_no_run_has(tools: Any) -> None:
    named = CLAIM + "  where: {train_length: 128}\n"
    assert "train_length=128" in undecided(tools, sides(tools), named)
    limited = CLAIM + "  where: {train_length: {above: 64}}\n"
    (verdict,) = tools.verdicts(limited, sides(tools))
    assert (verdict.outcome, verdict.train_length) == ("undecided", None)


def test_a_selector_of_several_runs_asks_for_what_tells_them_apart(tools: Any) -> None:
    runs = [*sides(tools), *sides(tools)[3:]]
    runs[-1].name = "rope-other"
    found = undecided(tools, runs)
    assert "several runs of one seed" in found and "rope-other" in found


@pytest.mark.parametrize(
    ("change", "told"),
    [({"tokens_hash": "b"}, "tokens_hash a and b"), ({"count": 999}, "count 1000 and 999")],
)
def test_other_tokens_are_not_compared(tools: Any, change: dict[str, Any], told: str) -> None:
    found = undecided(tools, sides(tools, **change))
    assert "scored on other tokens" in found and told in found


def test_other_training_data_are_not_compared(tools: Any) -> None:
    runs = sides(tools)
    for run in runs[3:]:
        run.config["frozen"] = {"fingerprint": "beef"}
        run.rows[0]["data"] = "beef"
    assert "trained on other data (f00dfeed and beef)" in undecided(tools, runs)


LENGTHS = """
- says: longer is better
  left: {perplexity: {encoding: alibi, length: longest}}
  is: below
  right: {perplexity: {encoding: alibi, length: L}}
"""


@pytest.mark.parametrize(("full", "outcome"), [(500, "holds"), (1000, "undecided")])
def test_two_lengths_of_one_run_may_score_other_tokens_unless_cut_short(
    tools: Any, full: int, outcome: str
) -> None:
    runs = [tools.fake("alibi", 64, seed).read(64, 3.0) for seed in (1, 2, 3)]
    for run in runs:
        run.read(128, 2.9, count=500, full_count=full, tokens_hash="b")
    assert tools.outcomes(LENGTHS, runs) == {64: outcome}


def test_the_longest_length_is_one_that_all_have(tools: Any) -> None:
    runs = [tools.fake("alibi", 64, seed).read(64, 3.0).read(128, 2.9) for seed in (1, 2, 3)]
    runs[0].read(256, 9.0)
    (verdict,) = tools.verdicts(LENGTHS, runs)
    assert verdict.outcome == "holds"
    assert verdict.findings[0].difference.mean == pytest.approx(2.718281828**-0.1 - 1)


def test_rows_of_another_corpus_split_or_swap_are_not_read(tools: Any) -> None:
    runs = sides(tools)
    for run in runs:
        for change in ({"data": "b", "data_name": "books"}, {"split": "test"}, {"swap": "ntk"}):
            run.read(64, 1.0 if run.config["choices"]["encoding"] == "rope" else 2.0, **change)
    assert tools.outcomes(CLAIM, runs) == {64: "holds"}
    for key in ("corpus: books", "split: test", "swap: ntk"):
        assert tools.outcomes(CLAIM + f"  where: {{{key}}}\n", runs) == {64: "fails"}, key
