"""Fixtures for the encoding tests."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc.attention import blocks, reference
from posenc.encodings.base import Encoding, Factors


@pytest.fixture
def product() -> Callable[[Factors], Tensor]:
    """Return a function that multiplies factors into a bias [B or 1, H, T, T], 0 on the diagonal.

    Factors define a bias only up to a constant per query, which this removes.
    """

    def multiply(factors: Factors) -> Tensor:
        query, key = factors
        query = torch.ones_like(key) if query is None else query
        return query @ key.mT - (query * key).sum(-1, keepdim=True)

    return multiply


@pytest.fixture
def assert_blocks_match() -> Callable[..., None]:
    """Return a function that compares `blocks` with `reference`, in float64 and float32."""

    def compare(encoding: Encoding, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> None:
        pos = torch.arange(x.shape[1])
        expected = reference.attend(encoding, x, q, k, v, pos)
        torch.testing.assert_close(blocks.attend(encoding, x, q, k, v, pos), expected)
        x, q, k, v = (tensor.float() for tensor in (x, q, k, v))
        actual = blocks.attend(encoding.float(), x, q, k, v, pos)
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)

    return compare
