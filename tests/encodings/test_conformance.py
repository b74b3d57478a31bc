"""What every encoding of `conf/encoding/` must do, found by discovery: no list to edit."""

from functools import cache

import pytest

from posenc.check import PROPERTIES, SMALL, Property, Subject, verdict
from posenc.check.sequence import has_prefixes
from posenc.config.compose import compose
from posenc.config.paths import options
from posenc.encodings.base import Geometry

NAMES = options("encoding")


@cache
def subject(name: str) -> Subject:
    """One for all properties, which then share what they build."""
    config = compose("train", [*SMALL, f"encoding={name}"])
    config.modules = []
    return Subject(config, NAMES[name])


@pytest.mark.parametrize("property", PROPERTIES, ids=lambda property: property.__name__)
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_encoding_has_every_property(name: str, property: Property) -> None:
    found = verdict(property, subject(name))
    assert found.kind != "fails", found.evidence


@pytest.mark.parametrize("spectrum", sorted(options("encoding/spectrum")))
@pytest.mark.parametrize("name", ["rope", "sinusoidal", "pope", "xpos"])
def test_a_spectrum_that_follows_the_length_says_so(name: str, spectrum: str) -> None:
    config = compose("train", [*SMALL, f"encoding={name}", f"encoding/spectrum={spectrum}"])
    config.modules = []
    found = verdict(has_prefixes, Subject(config, NAMES[name]))
    follows = spectrum in {"dynamic_ntk", "dynamic_ntk_hf", "longrope"}
    assert found.kind == ("exception" if follows else "holds"), found.evidence


def test_an_odd_head_count_and_width_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"heads=3 do not divide width=32"):
        Geometry(width=32, heads=3, layers=1, train_length=8)
