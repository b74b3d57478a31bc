"""Claims about quantities, judged on results that satisfy them and on results that do not."""

from typing import Any

import pytest

SEEDS = (1, 2, 3)


def fake_runs(tools: Any, losses: dict[str, dict[int, float]], train_length: int = 64) -> list[Any]:
    """Return runs of three seeds; `losses` maps encodings to losses by evaluation length."""
    runs = []
    for encoding, by_length in losses.items():
        for seed in SEEDS:
            run = tools.fake(encoding, train_length, seed)
            for length, loss in by_length.items():
                run.add_row(length, loss + 0.1 * seed + 1e-4 * ((seed * length) % 7))
            runs.append(run)
    return runs


EXTRAPOLATES = """
- statement: "alibi: perplexity at 2L is below perplexity at L"
  left: {perplexity: {encoding: alibi, length: 2L}}
  is: below
  right: {perplexity: {encoding: alibi, length: L}}
"""
DOUBLES = """
- statement: "sinusoidal: minimum lies between L and L+50 and by 2L perplexity has at least doubled"
  where: {encoding: sinusoidal}
  all:
    - {left: {length_of_minimum: {}}, is: at_least, right: L, margin: 1}
    - {left: {length_of_minimum: {}}, is: at_most, right: L+50, margin: 1}
    - left: {perplexity: {length: 2L}}
      is: at_least
      right: {perplexity: {length: L}, times: 2}
      margin: 0.01
"""
LOSES = """
- statement: "trained at 64, ALiBi loses to sinusoidal at the training length"
  left: {perplexity: {encoding: alibi, length: L}}
  is: above
  right: {perplexity: {encoding: sinusoidal, length: L}}
  where: {train_length: 64}
"""


@pytest.mark.parametrize(
    ("claim", "holds", "fails"),
    [
        (EXTRAPOLATES, {"alibi": {64: 3.0, 128: 2.9}}, {"alibi": {64: 3.0, 128: 3.1}}),
        (
            DOUBLES,
            {"sinusoidal": {64: 3.0, 96: 2.9, 128: 3.8}},
            {"sinusoidal": {64: 3.0, 96: 2.9, 128: 3.6}},
        ),
        (
            DOUBLES,
            {"sinusoidal": {64: 3.0, 114: 2.9, 128: 3.8}},
            {"sinusoidal": {64: 3.0, 117: 2.9, 128: 3.8}},
        ),
        (
            LOSES,
            {"alibi": {64: 3.1}, "sinusoidal": {64: 3.0}},
            {"alibi": {64: 3.0}, "sinusoidal": {64: 3.1}},
        ),
    ],
)
def test_a_claim_holds_on_results_that_satisfy_it_and_fails_on_others(
    tools: Any, claim: str, holds: Any, fails: Any
) -> None:
    assert tools.outcomes(claim, fake_runs(tools, holds)) == {64: "holds"}
    assert tools.outcomes(claim, fake_runs(tools, fails)) == {64: "fails"}


SLIDING = """
- statement: "under a sliding window ALiBi's gain with length vanishes"
  where: {encoding: alibi}
  all:
    - left: {perplexity: {length: 2L}}
      is: below
      right: {perplexity: {length: L}}
    - left: {perplexity: {length: 2L, protocol: sliding, stride: 1}}
      is: equal
      right: {perplexity: {length: L, protocol: sliding, stride: 1}}
      margin: 0.02
"""


@pytest.mark.parametrize(("gain", "outcome"), [(0.001, "holds"), (0.1, "fails")])
def test_clauses_with_a_protocol_and_a_stride_select_their_rows(
    tools: Any, gain: float, outcome: str
) -> None:
    runs = fake_runs(tools, {"alibi": {64: 3.0, 128: 2.8}})
    for run in runs:
        for stride in (1, 8):
            fall = 0.0 if stride == 8 else gain
            run.add_row(64, 2.7, protocol="sliding", stride=stride)
            run.add_row(128, 2.7 - fall, protocol="sliding", stride=stride)
    assert tools.outcomes(SLIDING, runs) == {64: outcome}
    (verdict,) = tools.verdicts(SLIDING, runs)
    assert [clause.outcome for clause in verdict.clauses] == ["holds", outcome]


BY_TRAIN_LENGTH = """
- statement: "ALiBi is worse at 32L than at L if trained below 128 tokens, but not from L = 256 on"
  where: {encoding: alibi}
  all:
    - left: {perplexity: {length: 32L}}
      is: above
      right: {perplexity: {length: L}}
      where: {train_length: {below: 128}}
    - left: {perplexity: {length: 32L}}
      is: at_most
      right: {perplexity: {length: L}}
      margin: 0.01
      where: {train_length: {at_least: 256}}
"""


def test_clauses_apply_to_different_training_lengths(tools: Any) -> None:
    short, middle, long = (
        fake_runs(tools, {"alibi": {n: 3.0, 32 * n: 3.0 + rise}}, n)
        for n, rise in ((64, 0.2), (128, 0.1), (256, -0.1))
    )
    runs = [*short, *middle, *long]
    assert tools.outcomes(BY_TRAIN_LENGTH, runs) == {64: "holds", 256: "holds"}
    falls = fake_runs(tools, {"alibi": {64: 3.0, 2048: 2.9}}, 64)
    rises = fake_runs(tools, {"alibi": {256: 3.0, 8192: 3.2}}, 256)
    assert tools.outcomes(BY_TRAIN_LENGTH, [*falls, *middle, *rises]) == {64: "fails", 256: "fails"}


COST = """
- statement: "at 2048, ALiBi trained at 1024 equals sinusoidal trained at 2048, at a lower cost"
  where: {train_length: 1024}
  all:
    - left: {perplexity: {encoding: alibi, length: 2L}}
      is: equal
      right: {perplexity: {encoding: sinusoidal, train_length: 2L, length: 2L}}
      margin: 0.02
    - left: {training_tokens_per_second: {encoding: alibi}}
      is: at_least
      right: {times: 1.11, training_tokens_per_second: {encoding: sinusoidal, train_length: 2L}}
      margin: 0.01
    - left: {training_memory_mb: {encoding: alibi}}
      is: at_most
      right: {times: 0.89, training_memory_mb: {encoding: sinusoidal, train_length: 2L}}
      margin: 0.01
"""


@pytest.mark.parametrize(
    ("loss", "speed", "memory", "expected"),
    [
        (3.001, 1120.0, 880.0, ["holds", "holds", "holds"]),
        (3.1, 1120.0, 880.0, ["fails", "holds", "holds"]),
        (3.001, 1090.0, 880.0, ["holds", "fails", "holds"]),
        (3.001, 1120.0, 910.0, ["holds", "holds", "fails"]),
    ],
)
def test_the_sides_can_differ_in_training_length_and_by_a_factor(
    tools: Any, loss: float, speed: float, memory: float, expected: list[str]
) -> None:
    alibi = fake_runs(tools, {"alibi": {2048: loss}}, 1024)
    sinusoidal = fake_runs(tools, {"sinusoidal": {2048: 3.0}}, 2048)
    for runs, rate, peak in ((alibi, speed, memory), (sinusoidal, 1000.0, 1000.0)):
        for run in runs:
            lines = [(rate / 9, peak / 2), (rate, peak), (rate, peak)]  # the first is slow
            run.timing.extend({"tokens_per_second": r, "memory_mb": m} for r, m in lines)
    (verdict,) = tools.verdicts(COST, [*alibi, *sinusoidal])
    assert [clause.outcome for clause in verdict.clauses] == expected
    assert verdict.outcome == ("fails" if "fails" in expected else "holds")


@pytest.mark.parametrize("key", ["device", "processor", "threads"])
def test_speed_is_not_compared_between_machines(tools: Any, key: str) -> None:
    alibi = fake_runs(tools, {"alibi": {2048: 3.0}}, 1024)
    sinusoidal = fake_runs(tools, {"sinusoidal": {2048: 3.0}}, 2048)
    for run in (*alibi, *sinusoidal):
        run.timing.extend({"tokens_per_second": 1000.0, "memory_mb": 1000.0} for _ in range(3))
    alibi[1].status.resolved[key] = "another"
    (verdict,) = tools.verdicts(COST, [*alibi, *sinusoidal])
    assert [c.outcome for c in verdict.clauses] == ["holds", "not comparable", "not comparable"]
    assert f"with {key} another and None" in str(verdict.clauses[1].reason)


TRUNCATED = """
- statement: "0.75-RoPE is not worse than RoPE"
  where: {encoding: rope, length: L}
  left: {perplexity: {encoding/spectrum: p_rope, encoding.spectrum.fraction: 0.75}}
  is: at_most
  right: {perplexity: {encoding/spectrum: geometric}}
  margin: 0.005
"""


@pytest.mark.parametrize(("loss", "outcome"), [(3.003, "holds"), (2.9, "holds"), (3.02, "fails")])
def test_a_selector_with_a_parameter_selects_its_runs(
    tools: Any, loss: float, outcome: str
) -> None:
    runs = []
    for spectrum, fraction, level in (
        ("p_rope", 0.75, loss),
        ("p_rope", 0.5, 9),
        ("geometric", 1, 3),
    ):
        for seed in SEEDS:
            run = tools.fake("rope", 64, seed, encoding={"spectrum": {"fraction": fraction}})
            run.config["choices"]["encoding/spectrum"] = spectrum
            runs.append(run.add_row(64, level + 0.1 * seed))
    assert tools.outcomes(TRUNCATED, runs) == {64: outcome}


ACCURACY = """
- statement: "copying holds up at four times the length"
  left: {accuracy: {encoding: alibi, data: task_copy, length: 4L}}
  is: at_least
  right: 0.9
  margin: 0.01
"""


@pytest.mark.parametrize(("accuracy", "outcome"), [(0.95, "holds"), (0.6, "fails")])
def test_accuracy_on_a_task_is_compared_with_a_number(
    tools: Any, accuracy: float, outcome: str
) -> None:
    runs = []
    for seed in SEEDS:
        run = tools.fake("alibi", 64, seed)
        run.config["choices"]["data"] = "task_copy"
        task_row = {"protocol": "tasks", "accuracy": accuracy + 0.001 * seed}
        runs.append(run.add_row(256, 0.1, **task_row).add_row(256, 5.0))
    assert tools.outcomes(ACCURACY, runs) == {64: outcome}
    (clause,) = tools.verdicts(ACCURACY, runs)[0].clauses
    assert clause.left == pytest.approx(accuracy + 0.002) and clause.right == 0.9
    assert not clause.clause.scale.is_relative
