"""Every encoding in `conf/encoding/`, discovered by its YAML file, passes the property suite."""

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch

from compositions import ONE_PER_METHOD, composed, encoding_params, one_per_class
from posenc.check import (
    PROPERTIES,
    EncodingUnderTest,
    check,
    check_property,
    verify_encoding,
)
from posenc.check.numerics import bfloat16_is_safe
from posenc.check.sequences import is_prefix_consistent
from posenc.cli.check import SMALL_MODEL
from posenc.config.paths import options
from posenc.encodings.base import Geometry

NAMES = options("encoding")
OTHERS = ("pope", "xpos")
"""Further encodings with a spectrum, for the slow tests."""


@cache
def encoding_under_test(name: str) -> EncodingUnderTest:
    """Return the encoding `name`; cached, because composing its configuration is slow."""
    config = composed(*SMALL_MODEL, f"encoding={name}")
    config.modules = []
    return EncodingUnderTest(config, NAMES[name], largest_position=2000)


@pytest.mark.parametrize("name", encoding_params(fast=ONE_PER_METHOD))
def test_every_encoding_has_every_property_or_a_known_limitation(name: str) -> None:
    results = {prop.__name__: result for prop, result in check(encoding_under_test(name))}
    assert len(results) == len(PROPERTIES)
    accepted = ("pass", "known limitation")
    assert not {prop: result for prop, result in results.items() if result.status not in accepted}


@pytest.mark.slow
@pytest.mark.parametrize("name", one_per_class())
def test_bfloat16_is_safe_at_large_positions(name: str) -> None:
    under_test = replace(encoding_under_test(name), largest_position=16_000)
    result = check_property(bfloat16_is_safe, under_test)
    assert result.status == "pass", result.evidence


@pytest.mark.parametrize("name", encoding_params())
def test_planning_accepts_every_encoding(name: str) -> None:
    verify_encoding(encoding_under_test(name).build_encoding({}), torch.float32)


@pytest.mark.parametrize("spectrum", sorted(options("encoding/spectrum")))
@pytest.mark.parametrize(
    "name",
    ["rope", "sinusoidal", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)],
)
def test_length_dependent_spectra_declare_their_limitation(name: str, spectrum: str) -> None:
    config = copy.deepcopy(encoding_under_test(name).config)
    rope = composed("encoding=rope", f"encoding/spectrum={spectrum}")
    config.encoding.spectrum = rope.encoding.spectrum
    result = check_property(is_prefix_consistent, EncodingUnderTest(config, NAMES[name]))
    length_dependent = spectrum in {"dynamic_ntk", "dynamic_ntk_hf", "longrope"}
    expected = "known limitation" if length_dependent else "pass"
    assert result.status == expected, result.evidence


def test_heads_that_do_not_divide_the_width_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"heads=3 does not divide width=32"):
        Geometry(width=32, heads=3, layers=1, train_length=8)
