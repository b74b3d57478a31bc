"""RoPE-Mixed, compared with rotations of complex numbers pair by pair."""

import cmath
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from posenc.encodings.base import Geometry
from posenc.encodings.rope import Layout, Rope
from posenc.encodings.rope_mixed import RopeMixed
from posenc.encodings.spectra import geometric

LAYER, HEADS, LENGTH = 1, 2, 11


def mixed(width: int, axes: int, base: float = 10.0, layout: Layout = "interleaved") -> RopeMixed:
    torch.manual_seed(4)
    geometry = Geometry(width=HEADS * width, heads=HEADS, layers=3, train_length=7)
    return RopeMixed(geometry, axes=axes, base=base, layout=layout)


def inputs(width: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 2, HEADS, LENGTH, width, generator=generator).double().unbind(0)
    return torch.zeros(2, LENGTH, HEADS * width), q, k


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize(("width", "axes"), [(8, 2), (12, 3), (6, 1)])
def test_pairs_rotate_by_a_linear_function_of_the_coordinates(
    width: int, axes: int, layout: Layout
) -> None:
    encoding = mixed(width, axes, layout=layout).double()
    encoding.frequencies.data += torch.randn_like(encoding.frequencies)
    x, q, k = inputs(width)
    pos = 40 * torch.rand(2, LENGTH, axes, dtype=torch.float64)
    with torch.no_grad():
        rotated = encoding.at_layer(LAYER).rotate(x, q, k, pos)
    for h in range(HEADS):
        for t in range(LENGTH):
            for c in range(width // 2):
                a, b = (2 * c, 2 * c + 1) if layout == "interleaved" else (c, c + width // 2)
                frequencies = encoding.frequencies[LAYER, :, h, c].tolist()
                angle = sum(f * p for f, p in zip(frequencies, pos[1, t].tolist(), strict=True))
                for before, after in zip((q, k), rotated, strict=True):
                    expected = complex(*before[1, h, t, [a, b]].tolist()) * cmath.exp(1j * angle)
                    actual = complex(*after[1, h, t, [a, b]].tolist())
                    assert actual == pytest.approx(expected, abs=1e-11)


def test_initial_frequencies_on_two_axes_are_those_of_the_authors_code() -> None:
    """With an angle a per head: (m cos a, m sin a), then (m cos(a + pi/2), m sin(a + pi/2))."""
    angles = []
    for layer in mixed(12, 2).frequencies.tolist():
        for along_x, along_y in zip(*layer, strict=True):
            angle = math.atan2(along_y[0], along_x[0])
            magnitudes = [10 ** (-4 * c / 12) for c in range(3)]
            expected = [m * cmath.rect(1, angle) for m in magnitudes]
            expected += [m * cmath.rect(1, angle + math.pi / 2) for m in magnitudes]
            actual = [complex(*pair) for pair in zip(along_x, along_y, strict=True)]
            assert actual == pytest.approx(expected, abs=1e-6)
            angles.append(round(angle, 3))
    assert len(set(angles)) == 6  # three layers of two heads


def test_initial_directions_of_three_axes_are_a_rotation() -> None:
    frequencies = mixed(12, 3, base=50.0).frequencies.double()  # [layers, axes, H, 6]
    directions = frequencies[..., ::2].permute(0, 2, 3, 1)  # the highest frequencies, of length 1
    identity = torch.eye(3, dtype=torch.float64).expand(3, HEADS, 3, 3)
    torch.testing.assert_close(directions @ directions.mT, identity, rtol=0, atol=1e-6)
    assert (directions.det() > 0).all()
    ratio = frequencies[..., 1::2] / frequencies[..., ::2]
    torch.testing.assert_close(ratio, torch.full_like(ratio, 50 ** (-6 / 12)))


def test_one_axis_starts_as_rope() -> None:
    encoding = mixed(12, 1, base=100.0, layout="half")
    x, q, k = inputs(12)
    pos = torch.arange(LENGTH)
    expected = Rope(
        encoding.geometry, spectrum=partial(geometric, base=100.0), layout="half"
    ).rotate(x, q, k, pos)
    torch.testing.assert_close(encoding.rotate(x, q, k, pos), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("width", "axes"), [(12, 0), (12, 4), (10, 2)])
def test_widths_that_cannot_be_divided_among_the_axes_are_rejected(width: int, axes: int) -> None:
    with pytest.raises(ValueError, match=f"axes={axes}.*dimension {width}"):
        mixed(width, axes)
