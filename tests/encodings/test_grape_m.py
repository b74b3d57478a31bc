"""Contextual GRAPE-M, compared with rotations of complex numbers token by token."""

import cmath
import math
from functools import partial
from typing import Literal

import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.grape_m import GrapeM
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.spectra import geometric

LAYER, LENGTH = 1, 21
GEOMETRY = Geometry(width=12, heads=2, layers=2, train_length=7)


def random_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    q, k = torch.randn(2, 2, 2, LENGTH, 6, generator=generator, dtype=torch.float64).unbind(0)
    return torch.randn(2, LENGTH, 12, generator=generator, dtype=torch.float64), q, k


@pytest.mark.parametrize("gate", ["softplus", "sigmoid"])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_pairs_rotate_by_the_sum_of_the_steps_before_a_token(
    gate: Literal["softplus", "sigmoid"], layout: Layout
) -> None:
    torch.manual_seed(1)
    encoding = GrapeM(GEOMETRY, gate=gate, initial_rate=0.3, layout=layout).double()
    for parameter in encoding.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, dtype=torch.float64)
    x, q, k = random_inputs()
    with torch.no_grad():
        rotated = encoding.at_layer(LAYER).rotate(x, q, k, torch.arange(LENGTH) + 1000)
    phase = 0.0
    for t in range(LENGTH):
        for c in range(3):
            a, b = (2 * c, 2 * c + 1) if layout == "interleaved" else (c, c + 3)
            rotation = cmath.exp(1j * phase * math.exp(encoding.log_frequencies[LAYER, c].item()))
            for before, after in zip((q, k), rotated, strict=True):
                expected = complex(before[1, 0, t, a], before[1, 0, t, b]) * rotation
                actual = complex(after[1, 0, t, a], after[1, 0, t, b])
                assert actual == pytest.approx(expected, abs=1e-12)
        logit = (encoding.weight[LAYER] @ x[1, t] + encoding.offset[LAYER]).item()
        softplus = math.log1p(math.exp(logit))
        phase += softplus if gate == "softplus" else 1 / (1 + math.exp(-logit / 16))


def test_constant_steps_of_1_give_rope() -> None:
    encoding = GrapeM(GEOMETRY, initial_rate=1.0, base=77.0).double()
    encoding.weight.data.zero_()
    x, q, k = random_inputs()
    pos = torch.arange(LENGTH)
    expected = Rope(GEOMETRY, spectrum=partial(geometric, base=77.0)).rotate(x, q, k, pos)
    torch.testing.assert_close(encoding.rotate(x, q, k, pos), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("gate", "expected"), [("softplus", 1e-3), ("sigmoid", 0.3937)])
def test_initial_steps_match_golden_values(
    gate: Literal["softplus", "sigmoid"], expected: float
) -> None:
    encoding = GrapeM(GEOMETRY, gate=gate).double()
    steps = encoding.phases(torch.zeros(1, 4, 12, dtype=torch.float64)).diff()
    assert steps.flatten().tolist() == pytest.approx([expected] * 3, rel=1e-4)


def test_the_head_width_must_be_even() -> None:
    with pytest.raises(ValueError, match="head dimension 5 must be even"):
        GrapeM(Geometry(width=10, heads=2, layers=1, train_length=7))
