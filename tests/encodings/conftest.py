"""Shared by the tests of encodings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Factors


@pytest.fixture
def product() -> Callable[[list[Factors]], Tensor]:
    """The bias [B|1, H, T, T] that factors stand for, up to a constant per query."""

    def multiplied(pairs: list[Factors]) -> Tensor:
        found = []
        for of_query, of_key in pairs:
            some = of_key if of_query is None else of_query
            assert some is not None
            queries, keys = (torch.ones_like(some) if f is None else f for f in (of_query, of_key))
            found.append(queries @ keys.mT)
        return torch.stack(found).sum(0)

    return multiplied
