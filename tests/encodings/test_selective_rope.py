"""Selective RoPE against rotations of complex numbers, token by token."""

import cmath
import math

import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.selective_rope import SelectiveRope

LAYER, LENGTH, HEADS, PAIRS = 1, 19, 2, 3
GEOMETRY = Geometry(width=12, heads=HEADS, layers=2, train_length=7)


@pytest.mark.parametrize(("rank", "conv_width", "base"), [(5, 4, 5e5), (1, 3, 10.0), (16, 1, 1.0)])
def test_pairs_rotate_by_convolved_sums(rank: int, conv_width: int, base: float) -> None:
    torch.manual_seed(3)
    encoding = SelectiveRope(GEOMETRY, rank=rank, conv_width=conv_width, base=base).double()
    for parameter in encoding.parameters():
        parameter.data += torch.randn(parameter.shape, dtype=torch.float64)
    x = torch.randn(2, LENGTH, 12, dtype=torch.float64)
    q, k = torch.randn(2, 2, HEADS, LENGTH, 6, dtype=torch.float64).unbind(0)
    down, up, kernel = (p[LAYER].detach() for p in (encoding.down, encoding.up, encoding.kernel))
    steps = []
    for t in range(LENGTH):
        heads = [x[1, t, 6 * h : 6 * h + 6] for h in range(HEADS)]
        normalized = [part / math.sqrt(part @ part + 1e-6) for part in heads]
        steps.append(up @ (down @ torch.cat(normalized)))
    with torch.no_grad():
        rotated = encoding.at_layer(LAYER).rotate(x, q, k, torch.arange(LENGTH) + 50)
    for h in range(HEADS):
        for p in range(PAIRS):
            channel, phase = PAIRS * h + p, 0.0
            for t in range(LENGTH):
                for lag in range(min(conv_width, t + 1)):
                    phase += (kernel[channel, -1 - lag] * steps[t - lag][channel]).item()
                rotation = cmath.exp(1j * phase * base ** (-2 * p / 6))
                for before, after in zip((q, k), rotated, strict=True):
                    expected = complex(before[1, h, t, p], before[1, h, t, p + 3]) * rotation
                    actual = complex(after[1, h, t, p], after[1, h, t, p + 3])
                    assert actual == pytest.approx(expected, abs=1e-11)


def test_initial_values_are_those_of_pytorchs_layers() -> None:
    torch.manual_seed(0)
    encoding = SelectiveRope(Geometry(width=128, heads=4, layers=3, train_length=7))
    linear = torch.nn.Linear(128, 16, bias=False)
    conv = torch.nn.Conv1d(64, 64, 4, groups=64, bias=False)
    for ours, theirs in ((encoding.down, linear.weight), (encoding.kernel, conv.weight)):
        assert ours.abs().max().item() == pytest.approx(theirs.abs().max().item(), rel=0.02)
        assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.1)


def test_invalid_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="rank=0"):
        SelectiveRope(GEOMETRY, rank=0)
    with pytest.raises(ValueError, match="head width 5 must be even"):
        SelectiveRope(Geometry(width=10, heads=2, layers=1, train_length=7))
