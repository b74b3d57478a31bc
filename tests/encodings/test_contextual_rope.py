"""Selective RoPE, CARoPE and DaRoPE, compared with rotations of complex numbers token by token."""

import cmath
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.carope import CaRope
from posenc.encodings.darope import DaRope
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.selective_rope import SelectiveRope
from posenc.encodings.spectra import geometric

LAYER, LENGTH, HEADS, PAIRS = 1, 19, 2, 3
GEOMETRY = Geometry(width=12, heads=HEADS, layers=2, train_length=7)
Angle = Callable[[int, int, int], float]


def random_inputs(length: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    q, k = torch.randn(2, 2, HEADS, length, 6, dtype=torch.float64).unbind(0)
    return torch.randn(2, length, 12, dtype=torch.float64), q, k


def with_random_parameters(encoding: Any) -> Any:
    for parameter in encoding.parameters():
        parameter.data += torch.randn(parameter.shape)
    return encoding.double()


def assert_rotated(
    encoding: Any, x: Tensor, q: Tensor, k: Tensor, angle: Angle, pos: Tensor | None = None
) -> None:
    """Assert that angle(h, t, p) rotates pair p of token t in head h of the second sequence."""
    pos = torch.arange(LENGTH) if pos is None else pos
    channels = {"half": lambda p: [p, p + 3], "interleaved": lambda p: [2 * p, 2 * p + 1]}
    layout = getattr(encoding, "layout", "half")
    with torch.no_grad():
        rotated = encoding.at_layer(LAYER).rotate(x, q, k, pos)
    for before, after in zip((q, k), rotated, strict=True):
        for h in range(HEADS):
            for t in range(LENGTH):
                for p in range(PAIRS):
                    rotation = cmath.exp(1j * angle(h, t, p))
                    pair = channels[layout](p)
                    expected = complex(*before[1, h, t, pair].tolist()) * rotation
                    actual = complex(*after[1, h, t, pair].tolist())
                    assert actual == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_carope_rotates_by_sums_of_powers_of_its_frequencies(layout: Layout) -> None:
    torch.manual_seed(3)
    encoding = with_random_parameters(CaRope(GEOMETRY, base=50.0, layout=layout))
    x, q, k = random_inputs()
    initial_offset = math.log(math.exp(50 ** (1 / 3) - 1) - 1)

    def angle(h: int, t: int, p: int) -> float:
        total = 0.0
        for token in x[1, : t + 1]:
            z = (encoding.weight[LAYER, h] @ token + encoding.offset[LAYER, h]).item()
            z += initial_offset
            total += (1 / (math.log(1 + math.exp(z)) + 1)) ** p
        return total

    assert_rotated(encoding, x, q, k, angle)


@pytest.mark.parametrize("base", [1.5, 10000.0, 1e8, 1e300])
def test_carope_starts_with_the_scores_of_rope(base: float) -> None:
    torch.manual_seed(4)
    carope = CaRope(GEOMETRY, base=base).bfloat16()

    def base_spectrum(*arguments: Any) -> Any:
        return geometric(*arguments, base=base)

    x, q, k = random_inputs(150)
    pos = torch.arange(150)
    scores = []
    for encoding in (carope, Rope(GEOMETRY, spectrum=base_spectrum)):
        rotated_q, rotated_k = encoding.rotate(x, q, k, pos)
        scores.append(rotated_q @ rotated_k.mT)
    torch.testing.assert_close(*scores, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("start", [0.0, -8.0, 0.25, 1000.0])
def test_darope_learns_the_position_of_pairs_that_do_not_complete_a_rotation(
    layout: Layout, start: float
) -> None:
    torch.manual_seed(5)
    encoding = with_random_parameters(DaRope(GEOMETRY, base=5.0, layout=layout))
    x, q, k = random_inputs()
    frequencies = [5.0 ** (-2 * p / 6) for p in range(PAIRS)]
    assert [f >= 2 * math.pi / 7 for f in frequencies] == [True, False, False]

    def angle(h: int, t: int, p: int) -> float:
        if p == 0:
            return start + t
        fraction = (min(max(start + t, 0), 6) + 0.5) / 7
        logit = math.log(fraction / (1 - fraction))
        z = (encoding.weight[LAYER, h] @ x[1, t] + encoding.slope[LAYER, h] * logit).item()
        return 7 / (1 + math.exp(-z)) * frequencies[p]

    assert_rotated(encoding, x, q, k, angle, torch.arange(LENGTH) + start)


def test_darope_starts_with_slopes_of_one_half_and_random_weights() -> None:
    torch.manual_seed(0)
    encoding = DaRope(Geometry(width=256, heads=8, layers=3, train_length=64))
    assert (encoding.slope == 0.5).all()
    assert encoding.weight.std().item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(("rank", "conv_width", "base"), [(5, 4, 5e5), (1, 3, 10.0), (16, 1, 1.0)])
def test_selective_rope_rotates_by_sums_of_convolved_projections(
    rank: int, conv_width: int, base: float
) -> None:
    torch.manual_seed(7)
    encoding = with_random_parameters(
        SelectiveRope(GEOMETRY, rank=rank, conv_width=conv_width, base=base)
    )
    x, q, k = random_inputs()
    down, up, kernel = (p[LAYER].detach() for p in (encoding.down, encoding.up, encoding.kernel))
    steps = []
    for token in x[1]:
        heads = [token[6 * h : 6 * h + 6] for h in range(HEADS)]
        steps.append(up @ (down @ torch.cat([h / math.sqrt(h @ h + 1e-6) for h in heads])))

    def angle(h: int, t: int, p: int) -> float:
        channel, total = PAIRS * h + p, 0.0
        for s in range(t + 1):
            for lag in range(min(conv_width, s + 1)):
                total += (kernel[channel, -1 - lag] * steps[s - lag][channel]).item()
        return total * base ** (-2 * p / 6)

    assert_rotated(encoding, x, q, k, angle, torch.arange(LENGTH) + 50)


def test_initial_values_of_selective_rope_are_those_of_pytorchs_layers() -> None:
    torch.manual_seed(0)
    encoding = SelectiveRope(Geometry(width=128, heads=4, layers=3, train_length=7))
    linear = torch.nn.Linear(128, 16, bias=False)
    conv = torch.nn.Conv1d(64, 64, 4, groups=64, bias=False)
    for ours, theirs in ((encoding.down, linear.weight), (encoding.kernel, conv.weight)):
        assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.02)
        assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.1)


@pytest.mark.parametrize("build", [CaRope, DaRope, SelectiveRope])
def test_gradients_reach_all_parameters(build: Callable[[Geometry], Any]) -> None:
    torch.manual_seed(6)
    x, q, k = random_inputs()
    encoding = with_random_parameters(build(GEOMETRY))
    for layer in range(GEOMETRY.layers):
        rotated_q, rotated_k = encoding.at_layer(layer).rotate(x, q, k, torch.arange(LENGTH))
        (rotated_q @ rotated_k.mT).square().sum().backward()
    for parameter in encoding.parameters():
        assert parameter.grad is not None
        assert (parameter.grad.flatten(1).abs().amax(1) > 0).all()


def test_invalid_parameters_are_rejected() -> None:
    odd = Geometry(width=10, heads=2, layers=1, train_length=7)
    for build in (CaRope, DaRope, SelectiveRope):
        with pytest.raises(ValueError, match="head dimension 5 must be even"):
            build(odd)
    for base in (1.0, math.inf):
        with pytest.raises(ValueError, match=f"base={base}"):
            CaRope(GEOMETRY, base=base)
    with pytest.raises(ValueError, match="rank=0"):
        SelectiveRope(GEOMETRY, rank=0)
    with pytest.raises(ValueError, match=r"base=1\.1: every pair completes a rotation"):
        DaRope(GEOMETRY, base=1.1)
    x, q, k = random_inputs()
    with pytest.raises(ValueError, match="darope takes one position per token"):
        DaRope(GEOMETRY).rotate(x, q, k, torch.zeros(2, LENGTH, 2))
