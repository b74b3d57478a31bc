"""Integers, scaled integers and binary digits against strings and fractions of Python's."""

from fractions import Fraction
from typing import Literal

import pytest
import torch
from torch import Tensor

from posenc.attention import reference
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.ladder import Binary, Integers, ScaledIntegers
from posenc.model.transformer import Transformer


def geometry(width: int = 12) -> Geometry:
    return Geometry(width=width, heads=2, layers=1, train_length=32)


def added(encoding: Encoding, pos: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """What the encoding adds to the stream, [T, D]; the stream itself is 1 everywhere."""
    x = torch.ones(2, len(pos), encoding.geometry.width, dtype=dtype, requires_grad=True)
    out = encoding.embed(x, pos)
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert out.dtype == dtype and torch.equal(out[0], out[1])
    assert torch.equal(slope, torch.ones_like(x))
    return (out.detach() - 1)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_integers_are_the_position_in_every_channel(dtype: torch.dtype) -> None:
    pos = torch.tensor([0, 1, 7, 512, 99_999, 100_000])
    found = added(Integers(geometry()), pos, dtype)
    assert found.tolist() == [[float(m)] * 12 for m in pos.tolist()]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 1001])
def test_scaled_integers_go_from_0_to_1(length: int) -> None:
    found = added(ScaledIntegers(geometry()), torch.arange(length))
    for m in range(length):
        wanted = Fraction(m, max(1, length - 1))
        assert found[m].tolist() == pytest.approx([float(wanted)] * 12, abs=1e-15)


def test_scaled_integers_as_article_001_numbers_them() -> None:
    encoding = ScaledIntegers(geometry())
    assert added(encoding, torch.arange(3))[:, 0].tolist() == [0, 0.5, 1]
    four = added(encoding, torch.arange(4), torch.float32)[:, 5].tolist()
    assert four == pytest.approx([0, 1 / 3, 2 / 3, 1], rel=1e-6)


def test_scaled_integers_of_given_positions_end_at_1() -> None:
    found = added(ScaledIntegers(geometry()), torch.tensor([3, 4, 1000]))
    assert found[:, 0].tolist() == pytest.approx([0.003, 0.004, 1.0])


@pytest.mark.parametrize(
    ("width", "digits"), [(12, None), (12, 12), (12, 5), (12, 1), (70, None), (70, 66), (1536, 17)]
)
def test_binary_digits_are_those_that_python_writes(width: int, digits: int | None) -> None:
    pos = torch.tensor([0, 1, 2, 252, 4095, 4096, 100_000, 2**62 - 1, 2**62, 2**63 - 1])
    found = added(Binary(geometry(width), digits=digits), pos)
    count = width if digits is None else digits
    for row, m in enumerate(pos.tolist()):
        written = f"{m:0{count}b}"[::-1]  # the lowest digit first
        wanted = [float(written[channel * count // width]) for channel in range(width)]
        assert found[row].tolist() == wanted


def test_binary_writes_252_as_article_002_does() -> None:
    found = added(Binary(geometry(16), digits=8), torch.tensor([252]))[0]
    assert found.view(8, 2)[:, 0].flip(0).tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert torch.equal(found.view(8, 2)[:, 0], found.view(8, 2)[:, 1])


def test_binary_positions_repeat_after_two_to_the_digits_and_not_before() -> None:
    encoding = Binary(geometry(20), digits=7)
    code = added(encoding, torch.arange(256))
    assert torch.equal(code[:128], code[128:])
    assert len(code.unique(dim=0)) == 128


@pytest.mark.parametrize("digits", [0, -1, 13])
def test_binary_refuses_more_digits_than_channels(digits: int) -> None:
    with pytest.raises(ValueError, match=rf"digits={digits} must be from 1 to .* 12; change"):
        Binary(geometry(12), digits=digits)


@pytest.mark.parametrize("kind", [Integers, ScaledIntegers, Binary])
def test_coordinates_are_refused(kind: type[Encoding]) -> None:
    with pytest.raises(ValueError, match=r"takes one position for each token"):
        kind(geometry()).embed(torch.zeros(1, 4, 12), torch.zeros(1, 4, 2))


@pytest.mark.parametrize(
    ("kind", "norm", "same"),
    [
        (Integers, "layer_norm", True),
        (ScaledIntegers, "layer_norm", True),
        (Binary, "layer_norm", False),
        (Integers, "rms_norm", False),
        (ScaledIntegers, "rms_norm", False),
    ],
)
def test_a_layer_norm_takes_out_what_all_channels_share(
    kind: type[Encoding], norm: Literal["layer_norm", "rms_norm"], same: bool
) -> None:
    def logits(encoding: Encoding) -> Tensor:
        torch.manual_seed(0)
        model = Transformer(
            9, encoding, reference.attend, width=12, layers=2, heads=2, feed_forward=8, norm=norm
        )
        return model.double()(torch.arange(9)[None])

    nothing = logits(Encoding(geometry()))
    assert torch.allclose(logits(kind(geometry())), nothing, rtol=0, atol=1e-9) == same
