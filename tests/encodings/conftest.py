"""Fixtures of the tests of encodings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Factors


@pytest.fixture
def product() -> Callable[[Factors], Tensor]:
    """Return a function that multiplies factors to a bias [B or 1, H, T, T], 0 on the diagonal."""

    def multiply(factors: Factors) -> Tensor:
        query, key = factors
        query = torch.ones_like(key) if query is None else query
        return query @ key.mT - (query * key).sum(-1, keepdim=True)

    return multiply
