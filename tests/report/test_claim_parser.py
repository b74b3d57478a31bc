"""The grammar of claims: valid claims, and errors that name the key."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from posenc.config.errors import ConfigError
from posenc.report.claim_parser import check_claims, parse_claims
from posenc.report.claim_sides import Length
from posenc.report.published_curves import parse_published

VALID_CLAIM = {
    "statement": "a",
    "left": {"perplexity": {"encoding": "alibi", "length": "2L"}},
    "is": "below",
    "right": {"perplexity": {"encoding": "alibi", "length": "L"}},
}
CURVE = {"train_length": 512, "unit": "perplexity", "source": "x", "values": {512: 19.73}}


@pytest.mark.parametrize(
    ("text", "at_64"),
    [
        (512, 512),
        ("512", None),
        ("-L", None),
        ("L", 64),
        ("2L", 128),
        ("1.5L", 96),
        ("L/4", 16),
        ("3L/2", 96),
        ("L+50", 114),
        ("2L-1", 127),
        (f"{'9' * 400}L", None),
    ],
)
def test_a_length_is_a_token_count_or_an_expression_in_the_training_length(
    text: Any, at_64: int | None
) -> None:
    if at_64 is None:
        with pytest.raises(ConfigError, match="length: "):
            Length.parse(text, "length")
    else:
        assert Length.parse(text, "length").num_tokens(64) == at_64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lft": 3}, "'lft' (did you mean left?)"),
        ({"statement": None}, "statement=None"),
        ({"is": "less"}, "claims[0].is: 'less' must be one of below, above, at_most"),
        ({"is": "equal"}, "claims[0].margin: 0 must be above 0 for equal"),
        ({"is": "at_most"}, "claims[0].margin: 0 must be above 0 for at_most"),
        ({"is": "at_least", "margin": 0}, "claims[0].margin: 0 must be above 0 for at_least"),
        ({"margin": -0.1}, "margin: -0.1 must be a number"),
        ({"margin": 10**400}, "must be a number"),
        (
            {"confidence": 95},
            "confidence: 95 must be a number that is at least 0.5 and below 0.9999",
        ),
        (
            {"left": {"perplexity": {"length": "L", "tokens": [1000, 2000]}}},
            "add `trend: tokens`",
        ),
        (
            {
                "left": {
                    "perplexity": {"length": "2L"},
                    "change_from": {"length": "L"},
                    "fraction_of_published": [10**15, 10**15 + 1],
                }
            },
            "must be two different numbers",
        ),
        ({"left": {"perplexty": {"length": "L"}}}, "(did you mean perplexity"),
        ({"left": {"perplexity": {"encoding": "alibi"}}}, "give an evaluation length"),
        ({"left": {"perplexity": {"length": "K"}}}, "length: 'K'"),
        ({"left": {"perplexity": {"length": "L", "seed": 1}}}, "unknown selector seed"),
        (
            {"left": {"perplexity": {"length": "L", "train_length": 64}}},
            "under `where`",
        ),
        ({"left": {"perplexity": {"length": "L"}, "times": 2}}, "times on the right side"),
        ({"left": {"perplexity": {"length": ["L", "2L"]}}}, "['L', '2L'] is not a length"),
        ({"left": {"length_of_minimum": {"length": "L"}}}, "remove length"),
        ({"left": {"training_memory_mb": {"protocol": "sliding"}}}, "protocol selects evaluation"),
        ({"right": {"loss": {"length": "L"}}}, "loss cannot be compared with perplexity"),
        ({"right": "L"}, "'L' must be a quantity or a number above 0"),
        ({"right": -1}, "-1 must be a quantity or a number above 0"),
        (
            {"right": {"perplexity": {"length": "L"}, "times": 0}},
            "times: 0 must be a number above 0",
        ),
        ({"where": {"train_length": {"under": 128}}}, "unknown key 'under'"),
        ({"where": {"train_length": "64"}}, "'64' must be a number of tokens"),
        ({"where": 3}, ".where: 3 must be a mapping"),
        ({"all": [VALID_CLAIM]}, "or a list of such clauses under `all`"),
        ({"right": ...}, "missing right; give left, is and right"),
    ],
)
def test_an_error_names_the_key_and_the_value(change: dict[str, Any], message: str) -> None:
    claim = {key: item for key, item in {**VALID_CLAIM, **change}.items() if item is not ...}
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_claims([claim])


def perplexity(length: Any = "L", **selector: Any) -> dict[str, Any]:
    return {"perplexity": {"encoding": "alibi", "length": length, **selector}}


CHANGE = {**perplexity("2L"), "change_from": {"length": "L"}}
TREND = {**perplexity(["L", "2L"]), "trend": "length"}
BASE = "encoding.spectrum.base"


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ({**perplexity("2L"), "change_from": {"length": "2L"}}, "selects the value itself"),
        ({**perplexity("2L"), "change_from": {"size": 3}}, "unknown selector size"),
        ({**perplexity("2L"), "change_from": 3}, "change_from: 3 must be a mapping"),
        ({**perplexity("2L"), "fraction_of_published": [1, 2]}, "needs change_from"),
        ({**CHANGE, "fraction_of_published": [19, 19]}, "[19, 19] must be two different numbers"),
        ({**CHANGE, "fraction_of_published": [0, 19]}, "[0, 19] must be two different numbers"),
        ({**CHANGE, "fraction_of_published": 0.9}, "0.9 must be two different numbers above 0"),
        (
            {**CHANGE, "trend": "length", "fraction_of_published": [1.0, 2.0]},
            "trend and fraction_of_published are mutually exclusive",
        ),
        ({**perplexity("2L"), "trend": "length"}, "'length' must be length or a parameter"),
        ({**perplexity(["L"]), "trend": "length"}, "a list of two or more different values"),
        ({**perplexity(["L", "L"]), "trend": "length"}, "a list of two or more different values"),
        ({**perplexity(["L", "K"]), "trend": "length"}, "'K' is not a length"),
        ({**perplexity(**{BASE: [0, 9]}), "trend": BASE}, "[0, 9] must be positive values"),
        (
            {**perplexity(protocol="sliding", stride=[1, 2]), "trend": "stride"},
            "stride is neither length nor a setting of the runs",
        ),
        ({**perplexity(**{BASE: ["a", "b"]}), "trend": BASE}, "must be positive values"),
        ({**perplexity(**{BASE: [100, 1e2]}), "trend": BASE}, "[100, 100.0]"),
        ({**perplexity(), "trnd": "length"}, "must have exactly one quantity"),
        (perplexity(stride=64), "stride=64 selects nothing, because the protocol nonoverlapping"),
    ],
)
def test_an_invalid_change_or_trend_is_an_error(side: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_claims([{**VALID_CLAIM, "left": side, "right": 0.5}])


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (CHANGE, perplexity(), "cannot be compared with"),
        (TREND, perplexity(), "cannot be compared with"),
        (TREND, CHANGE, "cannot be compared with"),
        (CHANGE, {**CHANGE, "fraction_of_published": [1, 2]}, "cannot be compared with"),
        ({"loss": {"length": "L"}}, {"loss": {"length": "L"}, **TREND}, "exactly one quantity"),
        (CHANGE, -1, "-1 must be a quantity or a number above -1"),
        (CHANGE, {"ngram": 3}, "ngram=3 cannot be compared with change in perplexity"),
        ({"accuracy": {"length": "L"}}, {"ngram": 3}, "only have perplexity and loss"),
        (perplexity(), {"ngram": 1}, "ngram: 1 must be an n-gram order of at least 2"),
        (perplexity(), {"ngram": "worst"}, "ngram: 'worst' must be an n-gram order"),
        (perplexity(), {"ngram": 3, "times": 2}, "unknown key 'times'"),
    ],
)
def test_both_sides_must_measure_the_same_quantity(left: Any, right: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_claims([{**VALID_CLAIM, "left": left, "right": right}])


def test_an_error_in_a_premise_names_the_premise() -> None:
    with pytest.raises(ConfigError, match=r"premises\[0\].is: 'x'"):
        parse_claims([{**VALID_CLAIM, "is": "x"}], "premises")


def test_one_error_lists_the_problems_of_all_claims() -> None:
    with pytest.raises(ConfigError, match=r"claims\[0\](.|\n)*claims\[2\]"):
        parse_claims([{**VALID_CLAIM, "is": "x"}, VALID_CLAIM, {"statement": "b"}])


@pytest.mark.parametrize("value", [3, {"statement": "a"}, "a"])
def test_claims_must_be_a_list(value: Any) -> None:
    with pytest.raises(ConfigError, match="must be a list"):
        parse_claims(value)


def test_unknown_options_and_protocols_are_errors(tmp_path: Path) -> None:
    mine = {**VALID_CLAIM, "left": {"perplexity": {"encoding": "mine", "length": "L"}}}
    with pytest.raises(ConfigError, match="encoding='mine' must be one of alibi, "):
        check_claims([mine], [])
    (tmp_path / "encoding").mkdir()
    (tmp_path / "encoding" / "mine.yaml").write_text("# Mine.\n")
    check_claims([mine], [tmp_path])
    with pytest.raises(ConfigError, match="protocol='slidng' must be one of nonoverlapping"):
        check_claims([{**VALID_CLAIM, "where": {"protocol": "slidng"}}], [])


def test_clauses_inherit_where_margin_and_confidence_and_can_override_them() -> None:
    with_margin = {"left": {"loss": {}}, "is": "at_most", "right": {"loss": {}}, "margin": 0.5}
    with_where = {key: item for key, item in with_margin.items() if key != "margin"}
    with_where |= {"where": {"length": "2L"}}
    shared = {"margin": 0.1, "confidence": 0.9, "where": {"length": "L", "train_length": [64, 128]}}
    (claim,) = parse_claims([{"statement": "a", "all": [with_margin, with_where], **shared}])
    first, second = claim.clauses
    assert (first.margin, second.margin, second.confidence) == (0.5, 0.1, 0.9)
    assert (first.left.length.text, second.left.length.text) == ("L", "2L")  # pyrefly: ignore
    assert first.train_lengths.select([32, 64]) == [64, 128]


def test_an_integral_float_in_a_selector_becomes_an_integer() -> None:
    selector = {"encoding.spectrum.base": 5e5, "length": "L"}
    (claim,) = parse_claims([{**VALID_CLAIM, "left": {"perplexity": selector}}])
    assert str(claim.clauses[0].left.values[0].selector) == "{'encoding.spectrum.base': 500000}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": {}}, "must map evaluation lengths to numbers"),
        ({"values": {"2L": 3}}, "'2L' must be a number of tokens"),
        ({"values": {512: "OOM"}}, "published[0].values.512: 'OOM' must be a number"),
        ({"values": {"²": 20}}, "'²' must be a number of tokens"),
        ({"values": {"9" * 5000: 20}}, "must be a number of tokens"),
        ({"values": {512: 10**400}}, "must be a number"),
        ({"values": {512: 0}}, "values.512: 0 must be a number that is at least 1"),
        ({"unit": "bits"}, "unit: 'bits' must be one of perplexity, loss"),
        ({"train_length": "L"}, "train_length: 'L' must be a number of tokens"),
        ({"unit": "accuracy", "values": {512: 95}}, "95 must be a fraction, at most 1"),
        ({"speed": 3}, "unknown selector speed"),
        ({"source": None}, "source: None must be"),
    ],
)
def test_an_invalid_published_curve_is_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_published([{**CURVE, **change}])


def test_lengths_of_a_published_curve_can_be_strings_as_in_json() -> None:
    (curve,) = parse_published([{**CURVE, "encoding": "alibi", "values": {"512": 20, 1024: 18.5}}])
    assert curve.values == {512: 20.0, 1024: 18.5} and curve.selector == {"encoding": "alibi"}


def test_every_example_in_the_documentation_of_claims_is_valid() -> None:
    page = Path(__file__).parents[2] / "docs" / "claims.md"
    blocks = [yaml.safe_load(b) for b in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)]
    claims = [claim for block in blocks for claim in block.get("claims") or []]
    assert parse_claims(claims)
    assert parse_claims([premise for block in blocks for premise in block.get("premises") or []])
    assert parse_published([curve for b in blocks for curve in b.get("published") or []])
