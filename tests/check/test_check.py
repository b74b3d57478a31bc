"""Every property can fail: what is wrong in one way is blamed for that, and only for that."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import posenc.check as checks
from posenc.check import PROPERTIES, SMALL, Subject, Verdict, check, in_words
from posenc.config.compose import compose

DESCRIPTION = "An encoding that is wrong in one way."
Found = dict[str, Verdict]
Checked = Callable[..., Found]

WRONG: list[tuple[str, Mapping[str, Any], dict[str, str]]] = [
    ("TellsTheHost", {"heads": 4}, {"holds_no_fact_of_the_host": "heads"}),
    ("Mistyped", {}, {"declares_with_reason": "shfit unknown"}),
    ("Unreasoned", {}, {"declares_with_reason": "shift declared without"}),
    ("AlwaysWide", {}, {"has_the_shapes": "rotate of layer 0 gives float64 [1, 4, 24, 8]"}),
    ("Leaking", {}, {"is_causal": "token 1 changes", "has_prefixes": "", "kernels_agree": ""}),
    ("Excusing", {}, {"is_causal": "yet it holds"}),
    ("Counting", {}, {"has_prefixes": "between 12 tokens"}),
    ("Absolute", {}, {"goes_by_differences": "1000"}),
    ("Overflowing", {}, {"extrapolates": "192 tokens are not finite in evaluation"}),
    ("FailsInTraining", {}, {"extrapolates": "192 tokens are not finite in training"}),
    ("LimitUnnamed", {}, {"extrapolates": "without naming the limit 24: too long"}),
    ("LimitUndeclared", {}, {"extrapolates": "max_length() is 24, but"}),
    ("LimitUnkept", {}, {"extrapolates": "25 tokens are not refused"}),
    ("LimitInItsNames", {}, {"loads_at_any_length": "length_96"}),
    ("LengthInItsState", {}, {"loads_at_any_length": "encoding.steps"}),
    ("IgnoresItsKnob", {"rate": 0.5}, {"knobs_act": "encoding.rate=0.5: 1 changes nothing"}),
    ("RemembersTheFirst", {"base": 100}, {"knobs_act": "encoding.base=100: 200 changes nothing"}),
    ("SharesItsKnob", {"rate": 0.5}, {"instances_stay_apart": "encoding.rate=1"}),
    ("Idle", {}, {"gradients_reach": "encoding.idle: none"}),
    ("HalfDetached", {}, {"gradients_are_right": "that by slope is wrong in layer 0"}),
    ("WrongFactors", {}, {"kernels_agree": "factored, outputs"}),
    ("FirstRowsOnly", {}, {"kernels_agree": "outputs"}),
    ("AnglesInFloat32", {}, {"half_precision_is_harmless": "rotate of layer 0"}),
    ("AnglesLikeQueries", {}, {"half_precision_is_harmless": "of bfloat16"}),
    ("AnglesUnderAutocast", {}, {"half_precision_is_harmless": "rotate of layer 0"}),
    ("SlopesInABuffer", {}, {"half_precision_is_harmless": "after .bfloat16()"}),
    ("SumsInFloat32", {}, {"half_precision_is_harmless": "bias of layer 0"}),
    ("MixesInHalfPrecision", {}, {"half_precision_is_harmless": "value_bias of layer 0"}),
]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Checks an encoding of `broken.py`; gives the verdicts by the properties' names."""
    monkeypatch.syspath_prepend(Path(__file__).parent)

    def run(name: str, description: str = DESCRIPTION, **knobs: Any) -> Found:
        config = compose("train", [*SMALL, "encoding=nope"])
        config.encoding = {"_target_": f"broken.{name}", **knobs}
        config.modules = ["broken"]
        return {p.__name__: verdict for p, verdict in check(Subject(config, description))}

    return run


def blamed(found: Found) -> dict[str, str]:
    return {name: verdict.evidence for name, verdict in found.items() if verdict.kind == "fails"}


@pytest.mark.parametrize(("name", "knobs", "wrong"), WRONG, ids=[name for name, *_ in WRONG])
def test_what_is_wrong_is_blamed_and_nothing_else(
    checked: Checked, name: str, knobs: Mapping[str, Any], wrong: dict[str, str]
) -> None:
    found = checked(name, **knobs)
    assert len(found) == len(PROPERTIES)
    told = blamed(found)
    assert told.keys() == wrong.keys(), told
    for property, part in wrong.items():
        assert part in told[property]


def test_every_property_is_seen_to_fail() -> None:
    seen = {property for *_, wrong in WRONG for property in wrong}
    elsewhere = {"builds", "describes_itself"}
    assert seen | elsewhere == {property.__name__ for property in PROPERTIES}


def test_what_is_right_is_not_blamed(checked: Checked) -> None:
    found = checked("Sound", rate=0.5)
    assert {verdict.kind for verdict in found.values()} == {"holds"}


def test_a_declared_exception_is_told_with_its_reason(checked: Checked) -> None:
    found = checked("Excepted")
    assert not blamed(found)
    assert found["goes_by_differences"].kind == "exception"
    assert "the query's own position counts; " in found["goes_by_differences"].evidence


def test_a_limit_of_the_training_length_is_an_exception(checked: Checked) -> None:
    found = checked("Limited")
    assert not blamed(found)
    excepted = {name for name, verdict in found.items() if verdict.kind == "exception"}
    assert excepted == {"goes_by_differences", "extrapolates", "loads_at_any_length"}
    assert found["extrapolates"].evidence == "a table ends; 25 tokens are refused"


def test_a_yaml_that_says_nothing_of_itself(checked: Checked) -> None:
    assert blamed(checked("Sound", description="", rate=0.5)).keys() == {"describes_itself"}


def test_what_cannot_be_built_has_one_verdict(checked: Checked) -> None:
    assert blamed(found := checked("Unbuildable")) == {
        "builds": "encoding: AttributeError: nothing here"
    }
    assert len(found) == 1


def test_a_hook_that_raises_is_told_in_one_line_and_the_rest_goes_on(checked: Checked) -> None:
    found = checked("Raising")
    told = blamed(found)
    unharmed = {
        "builds",
        "describes_itself",
        "holds_no_fact_of_the_host",
        "declares_with_reason",
        "loads_at_any_length",
        "knobs_act",
    }
    assert found.keys() - told.keys() == unharmed
    assert set(told.values()) == {told["is_causal"]}
    assert told["is_causal"].startswith("RuntimeError: no bias today (line ")
    assert told["is_causal"].endswith(" of broken)")


def test_every_property_says_what_it_is_in_a_few_words() -> None:
    assert all(10 < len(in_words(property)) <= 45 for property in PROPERTIES)
    assert {property.__module__.partition(".check")[0] for property in PROPERTIES} == {
        checks.__name__.partition(".check")[0]
    }
