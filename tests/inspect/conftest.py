"""Encodings in a small model, as `posenc inspect` builds them."""

from collections.abc import Callable

import pytest

from posenc.cli.arguments import parse
from posenc.cli.inspect import inspected_encodings
from posenc.inspect.encoding.encoding_page import PropertyValues, measure
from posenc.inspect.encoding.inspected_encoding import InspectedEncoding

MODEL = ["model.width=32", "model.heads=4", "train_length=64"]


@pytest.fixture(scope="session")
def inspected() -> Callable[..., InspectedEncoding]:
    """Builds an encoding by name, with overrides; L = 64, width 32, 4 heads."""

    def build(name: str, *overrides: str) -> InspectedEncoding:
        (result,) = inspected_encodings(parse("inspect", [f"encoding={name}", *MODEL, *overrides]))
        return result

    return build


@pytest.fixture(scope="session")
def measured(inspected: Callable[..., InspectedEncoding]) -> Callable[[str], PropertyValues]:
    """Returns all measurements of an encoding, which are cached."""
    results: dict[str, PropertyValues] = {}

    def get(name: str) -> PropertyValues:
        if name not in results:
            results[name] = measure(inspected(name))
        return results[name]

    return get
