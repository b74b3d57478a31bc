"""Saved configurations are read and written as OmegaConf would read and write them."""

import io
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from compositions import composed
from posenc.config.saved_yaml import dump_yaml, load_yaml

NUMBER_LIKE = st.from_regex(r"[-+0-9._eE:]{1,8}", fullmatch=True)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text("ab:- #'\"\n\té%{[]}!&", max_size=8),
    NUMBER_LIKE,
    st.sampled_from(["yes", "null", "~", "1e5", "2026-01-01", "0x1", "1_0", "=", "<<"]),
)
VALUES = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.lists(SCALARS, max_size=3))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(values=VALUES)
def test_values_are_read_back_by_posenc_and_omegaconf(values: dict) -> None:
    text = dump_yaml(values)
    assert load_yaml(text) == values
    assert OmegaConf.to_container(OmegaConf.load(io.StringIO(text))) == values


@settings(deadline=None, max_examples=60, derandomize=True)
@given(scalar=NUMBER_LIKE)
def test_unquoted_numbers_are_read_as_omegaconf_reads_them(scalar: str) -> None:
    text = f"key: {scalar}\n"
    try:
        expected = OmegaConf.to_container(OmegaConf.load(io.StringIO(text)))
    except (yaml.YAMLError, ValueError):
        return
    assert load_yaml(text) == expected


def test_a_configuration_has_the_text_that_omegaconf_writes() -> None:
    config = composed("encoding=rope", "encoding/spectrum=yarn", "tokens=1e5", "name='1e5'")
    assert dump_yaml(OmegaConf.to_container(config)) == OmegaConf.to_yaml(config)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [1]\nb: *x",
        "a: 1\na: 2",
        "[" * 200_000,
        "- " * 1000 + "1",
        "a: !!python/name:os.system ''",
        f"a: 0x{5000 * 'f'}",
        f"a: {'1:' * 450_000}1",
        f"a: {'1:' * 400}1.0",
        "a: [1",
        "a: 1\n---\na: 2",
        "? [a]\n: 1",
        "null: 1",
        "<<: {a: 1}",
    ],
    ids=[
        *("alias", "duplicate key", "unclosed", "nested", "object"),
        *(
            "hexadecimal",
            "base 60",
            "base 60 float",
            "syntax",
            "two documents",
            "list as key",
            "null as key",
            "merge key",
        ),
    ],
)
def test_yaml_that_planning_never_writes_is_an_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb:\n- x\n- y: 2\nc:\n  d: 1e3\n", {"a": 1, "b": ["x", {"y": 2}], "c": {"d": 1e3}}),
        ('a: "x\nb: y"\nc: 1\n', {"a": "x b: y", "c": 1}),
        ("a: 'x\n\nb: y'\nc: 1\n", {"a": "x\nb: y", "c": 1}),
        ("a: [1,\nb: 2]\n", {"a": [1, {"b": 2}]}),
        ("a: 1\nb: 2\na: 3\n", None),
        ("a: 1\n...\nb: 2\n", None),
        ("a: 1\n---\nb: 2\n", None),
        ("a: &x 1\nb: *x\n", None),
        ("a:\nb\n", None),
    ],
)
def test_reading_a_text_by_sections_does_not_change_its_meaning(text: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(yaml.YAMLError):
            load_yaml(text)
    else:
        assert load_yaml(text) == expected
