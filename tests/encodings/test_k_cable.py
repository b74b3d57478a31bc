"""K-CABLE, compared with its formula and with CABLE's golden values."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.k_cable import KCable

LAYER, HEADS, ROWS = 1, 3, 4
GEOMETRY = Geometry(width=6, heads=HEADS, layers=2, train_length=7)


def bias_of_last_queries(encoding: KCable, x: Tensor) -> Tensor:
    keys = x.shape[1]
    q, k = x.new_zeros(len(x), HEADS, ROWS, 2), x.new_zeros(len(x), HEADS, keys, 2)
    distance = torch.arange(keys - ROWS, keys)[:, None] - torch.arange(keys)
    return encoding.at_layer(LAYER).content_bias(x, q, k, distance.to(x.dtype), distance).detach()


@pytest.mark.parametrize("weighted", [True, False])
def test_the_bias_is_minus_the_logarithm_of_1_plus_the_squared_penalty(weighted: bool) -> None:
    torch.manual_seed(2)
    encoding = KCable(GEOMETRY, weighted=weighted).double()
    for parameter in encoding.parameters():
        parameter.data.normal_()
    x = torch.randn(2, 19, 6, dtype=torch.float64)
    bias = bias_of_last_queries(encoding, x)
    cable = encoding.cable
    for h, i, j in [(h, i, j) for h in range(HEADS) for i, j in ((18, 0), (16, 16), (15, 12))]:
        steps = [max(0.0, (cable.steps[LAYER, h] @ x[1, t]).item()) for t in range(j + 1, i + 1)]
        weight = 1.0
        if cable.weights is not None:
            weight = math.log1p(math.exp((cable.weights[LAYER, h] @ x[1, i]).item()))
        expected = -math.log(1 + (weight * math.fsum(steps)) ** 2)
        assert bias[1, h, i - 19, j].item() == pytest.approx(expected, abs=1e-12)


def test_the_bias_matches_the_golden_values_of_cable() -> None:
    """The pre-activations are 0.3, -1.2, 2.0, 0.5 and -0.1, and the weight is ln 2."""
    encoding = KCable(GEOMETRY).double()
    assert encoding.cable.weights is not None
    encoding.cable.weights.data.zero_()
    encoding.cable.steps.data.zero_()[LAYER, 0, 0] = 1
    x = torch.zeros(1, 5, 6, dtype=torch.float64)
    x[0, :, 0] = torch.tensor([0.3, -1.2, 2.0, 0.5, -0.1])
    penalties = [-1.732867951, -1.732867951, -0.3465735903, 0, 0]
    expected = [-math.log1p(penalty**2) for penalty in penalties]
    assert bias_of_last_queries(encoding, x)[0, 0, -1].tolist() == pytest.approx(expected, abs=1e-9)


def test_blocks_and_float32_match_the_reference_at_an_odd_length(
    assert_blocks_match: Callable[..., None],
) -> None:
    encoding = KCable(GEOMETRY).double().at_layer(LAYER)
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, 301, 2, generator=generator).double().unbind(0)
    x = torch.randn(1, 301, 6, generator=generator).double()
    assert_blocks_match(encoding, x, q, k, v)
