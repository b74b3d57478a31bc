"""Fixtures of the tests of encodings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Factors


@pytest.fixture
def product() -> Callable[[list[Factors]], Tensor]:
    """Return a function that multiplies factors to a bias [B or 1, H, T, T]."""

    def multiply(pairs: list[Factors]) -> Tensor:
        products = []
        for query, key in pairs:
            present = key if query is None else query
            assert present is not None
            queries, keys = (torch.ones_like(present) if f is None else f for f in (query, key))
            products.append(queries @ keys.mT)
        return torch.stack(products).sum(0)

    return multiply
