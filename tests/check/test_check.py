"""A broken encoding fails the properties that it breaks and no others."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from posenc.check import (
    PROPERTIES,
    EncodingUnderTest,
    Result,
    check,
    description,
)
from posenc.cli.check import SMALL_MODEL
from posenc.config.compose import compose

DESCRIPTION = "An encoding with one defect."
Results = dict[str, Result]
RunChecks = Callable[..., Results]

BROKEN: list[tuple[str, Mapping[str, Any], dict[str, str]]] = [
    ("UnknownLimitation", {}, {"declares_limitations": "unknown: shfit"}),
    ("LimitationWithoutReason", {}, {"declares_limitations": "shift_invariant declared without"}),
    (
        "ReturnsFloat64",
        {},
        {"shapes_are_correct": "ReturnsFloat64.rotate returned float64 [2, 4, 7, 8]"},
    ),
    (
        "NotCausal",
        {},
        {
            "is_causal": "through NotCausal.content_bias",
            "is_prefix_consistent": "",
            "kernels_agree": "",
        },
    ),
    (
        "RandomInEvaluation",
        {},
        {"is_reproducible": "depends on random numbers in evaluation", "kernels_agree": ""},
    ),
    ("MisspelledHook", {}, {"hooks_are_valid": "rename it to bias"}),
    ("NeedlessLimitation", {}, {"is_causal": "but the property holds"}),
    ("DependsOnLength", {}, {"is_prefix_consistent": "between 12 tokens"}),
    ("DependsOnQueryPosition", {}, {"is_shift_invariant": "1000"}),
    (
        "NotFinitePastTwiceTheLength",
        {},
        {"any_length": "192 tokens are not finite in evaluation"},
    ),
    ("NotFiniteInTraining", {}, {"any_length": "192 tokens are not finite in training"}),
    ("LimitNotInMessage", {}, {"any_length": "does not state the limit 24: too long"}),
    ("LimitNotDeclared", {}, {"any_length": "max_length() is 24, but"}),
    ("LimitNotEnforced", {}, {"any_length": "25 tokens are not rejected"}),
    ("LimitInParameterNames", {}, {"loads_at_any_length": "length_96"}),
    ("LengthInState", {}, {"loads_at_any_length": "encoding.steps"}),
    (
        "IgnoresItsParameter",
        {"rate": 0.5},
        {"parameters_have_effect": "encoding.rate=0.5: 1 changes nothing"},
    ),
    (
        "CachesTheFirstInstance",
        {"base": 100},
        {"parameters_have_effect": "encoding.base=100: 200 changes nothing"},
    ),
    ("SharesItsParameter", {"rate": 0.5}, {"instances_are_independent": "encoding.rate=1"}),
    ("NotFiniteAfterTheQuery", {}, {"shapes_are_correct": "NaN"}),
    ("UnusedParameter", {}, {"gradients_reach_parameters": "encoding.unused is None"}),
    ("HalfDetached", {}, {"gradients_are_correct": "slope is wrong in layer 0"}),
    ("WrongFactors", {}, {"kernels_agree": "factored, outputs"}),
    ("AssumesFirstRows", {}, {"kernels_agree": "outputs"}),
    ("AnglesInFloat32", {}, {"bfloat16_is_safe": "rotate of layer 0"}),
    ("AnglesLikeQueries", {}, {"bfloat16_is_safe": "bfloat16 inputs"}),
    ("AnglesUnderAutocast", {}, {"bfloat16_is_safe": "rotate of layer 0"}),
    ("SlopesInABuffer", {}, {"bfloat16_is_safe": "after .bfloat16()"}),
    ("SumsInFloat32", {}, {"bfloat16_is_safe": "bias of layer 0"}),
    ("ValueBiasInHalfPrecision", {}, {"bfloat16_is_safe": "value_bias of layer 0"}),
]


@pytest.fixture
def run_checks(monkeypatch: pytest.MonkeyPatch) -> RunChecks:
    """Checks an encoding of broken.py and returns the results by property name."""
    monkeypatch.syspath_prepend(Path(__file__).parent)

    def run(name: str, first_line: str = DESCRIPTION, **parameters: Any) -> Results:
        config = compose("train", [*SMALL_MODEL, "encoding=nope"])
        config.encoding = {"_target_": f"broken.{name}", **parameters}
        config.modules = ["broken"]
        return {p.__name__: result for p, result in check(EncodingUnderTest(config, first_line))}

    return run


def failures(results: Results) -> dict[str, str]:
    return {name: result.evidence for name, result in results.items() if result.status == "fail"}


@pytest.mark.parametrize(
    ("name", "parameters", "expected"), BROKEN, ids=[name for name, *_ in BROKEN]
)
def test_a_broken_encoding_fails_the_expected_properties_only(
    run_checks: RunChecks, name: str, parameters: Mapping[str, Any], expected: dict[str, str]
) -> None:
    results = run_checks(name, **parameters)
    assert len(results) == len(PROPERTIES)
    evidence = failures(results)
    assert evidence.keys() == expected.keys(), evidence
    for property, text in expected.items():
        assert text in evidence[property]
    if "bfloat16_is_safe" in evidence:
        assert "convert parameters before" in evidence["bfloat16_is_safe"]


def test_every_property_is_covered_by_a_test() -> None:
    covered = {property for *_, expected in BROKEN for property in expected}
    tested_separately = {"builds", "has_description", "omits_model_hyperparameters"}
    assert covered | tested_separately == {property.__name__ for property in PROPERTIES}


def test_a_correct_encoding_passes(run_checks: RunChecks) -> None:
    results = run_checks("Correct", rate=0.5)
    assert {result.status for result in results.values()} == {"pass"}


def test_a_declared_limitation_is_reported_with_its_reason(run_checks: RunChecks) -> None:
    results = run_checks("Limited")
    assert not failures(results)
    assert results["is_shift_invariant"].status == "known limitation"
    assert "the bias depends on the query's position; " in results["is_shift_invariant"].evidence


def test_a_maximum_length_equal_to_the_training_length_is_a_known_limitation(
    run_checks: RunChecks,
) -> None:
    results = run_checks("FiniteTable")
    assert not failures(results)
    limited = {name for name, result in results.items() if result.status == "known limitation"}
    assert limited == {"is_shift_invariant", "any_length", "loads_at_any_length"}
    assert results["any_length"].evidence == "the table ends; 25 tokens are rejected"


def test_style_mistakes_are_hints_and_not_failures(run_checks: RunChecks) -> None:
    results = run_checks("RepeatsModelHyperparameters", first_line="", heads=4)
    assert not failures(results)
    hints = {name for name, result in results.items() if result.status == "hint"}
    assert hints == {"has_description", "omits_model_hyperparameters"}


def test_an_encoding_that_cannot_be_built_has_one_result(run_checks: RunChecks) -> None:
    results = run_checks("Unbuildable")
    assert results.keys() == failures(results).keys() == {"builds"}
    assert results["builds"].evidence.endswith("encoding: AttributeError: nothing here")
    assert "broken.py, line 35" in results["builds"].evidence


def test_a_hook_that_raises_is_reported_on_one_line_and_other_properties_are_checked(
    run_checks: RunChecks,
) -> None:
    results = run_checks("Raising")
    evidence = failures(results)
    unaffected = {
        "builds",
        "has_description",
        "omits_model_hyperparameters",
        "declares_limitations",
        "hooks_are_valid",
        "loads_at_any_length",
        "parameters_have_effect",
    }
    assert results.keys() - evidence.keys() == unaffected
    message = evidence.pop("shapes_are_correct")
    assert "Raising.bias raised RuntimeError: no bias today (" in message
    assert "with head [4, 1, 1], distance [3, 7], pos_q [3, 1]" in message
    assert set(evidence.values()) == {"the same error as above"}


def test_errors_on_the_same_line_are_described_once(run_checks: RunChecks) -> None:
    first, *others = failures(run_checks("WithoutHeadIndex")).values()
    assert "size of tensor a (4) must match the size of tensor b (7)" in first
    same = {"RuntimeError on the same line as above", "the same error as above"}
    assert others and set(others) <= same


def test_every_property_has_a_short_description() -> None:
    assert all(10 < len(description(property)) <= 45 for property in PROPERTIES)
