"""Encodings of a small host, as `posenc inspect` sees them."""

from collections.abc import Callable

import pytest

from posenc.cli.arguments import parse
from posenc.cli.inspect_encoding import subjects_of
from posenc.inspect.encoding.matrix import Found, measure
from posenc.inspect.encoding.subject import Subject

HOST = ["model.width=32", "model.heads=4", "train_length=64"]


@pytest.fixture(scope="session")
def subject() -> Callable[..., Subject]:
    """An encoding by name, with overrides; L = 64, width 32, 4 heads."""

    def of(name: str, *overrides: str) -> Subject:
        (one,) = subjects_of(parse("inspect", [f"encoding={name}", *HOST, *overrides]))
        return one

    return of


@pytest.fixture(scope="session")
def found(subject: Callable[..., Subject]) -> Callable[[str], Found]:
    """Everything measured of an encoding, once."""
    known: dict[str, Found] = {}

    def of(name: str) -> Found:
        if name not in known:
            known[name] = measure(subject(name))
        return known[name]

    return of
