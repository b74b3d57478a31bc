"""Integers, scaled integers and binary digits, compared with Python's strings and fractions."""

from fractions import Fraction
from typing import Literal

import pytest
import torch
from torch import Tensor

from posenc.attention import reference
from posenc.encodings.base import Encoding, Geometry
from posenc.encodings.integers import Binary, Integers, ScaledIntegers
from posenc.model.transformer import Transformer


def geometry(width: int = 12) -> Geometry:
    return Geometry(width=width, heads=2, layers=1, train_length=32)


def embedding(encoding: Encoding, pos: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return what the encoding adds to hidden states of ones, [T, D]."""
    x = torch.ones(2, len(pos), encoding.geometry.width, dtype=dtype, requires_grad=True)
    out = encoding.embed(x, pos)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert out.dtype == dtype and torch.equal(out[0], out[1])
    assert torch.equal(gradient, torch.ones_like(x))
    return (out.detach() - 1)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_integers_are_the_position_in_every_channel(dtype: torch.dtype) -> None:
    pos = torch.tensor([0, 1, 7, 512, 99_999, 100_000])
    actual = embedding(Integers(geometry()), pos, dtype)
    assert actual.tolist() == [[float(m)] * 12 for m in pos.tolist()]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 1001])
def test_scaled_integers_go_from_0_to_1(length: int) -> None:
    actual = embedding(ScaledIntegers(geometry()), torch.arange(length))
    for m in range(length):
        expected = Fraction(m, max(1, length - 1))
        assert actual[m].tolist() == pytest.approx([float(expected)] * 12, abs=1e-15)


def test_scaled_integers_of_three_and_four_tokens_match_golden_values() -> None:
    encoding = ScaledIntegers(geometry())
    assert embedding(encoding, torch.arange(3))[:, 0].tolist() == [0, 0.5, 1]
    four = embedding(encoding, torch.arange(4), torch.float32)[:, 5].tolist()
    assert four == pytest.approx([0, 1 / 3, 2 / 3, 1], rel=1e-6)


def test_scaled_integers_of_positions_with_gaps_end_at_1() -> None:
    actual = embedding(ScaledIntegers(geometry()), torch.tensor([3, 4, 1000]))
    assert actual[:, 0].tolist() == pytest.approx([0.003, 0.004, 1.0])


@pytest.mark.parametrize(
    ("width", "digits"), [(12, None), (12, 12), (12, 5), (12, 1), (70, None), (70, 66), (1536, 17)]
)
def test_binary_digits_match_pythons_format(width: int, digits: int | None) -> None:
    pos = torch.tensor([0, 1, 2, 252, 4095, 4096, 100_000, 2**62 - 1, 2**62, 2**63 - 1])
    actual = embedding(Binary(geometry(width), digits=digits), pos)
    count = width if digits is None else digits
    for row, m in enumerate(pos.tolist()):
        digits_of_m = f"{m:0{count}b}"[::-1]  # lowest digit first
        expected = [float(digits_of_m[channel * count // width]) for channel in range(width)]
        assert actual[row].tolist() == expected


def test_binary_digits_of_252_are_11111100() -> None:
    actual = embedding(Binary(geometry(16), digits=8), torch.tensor([252]))[0]
    assert actual.view(8, 2)[:, 0].flip(0).tolist() == [1, 1, 1, 1, 1, 1, 0, 0]
    assert torch.equal(actual.view(8, 2)[:, 0], actual.view(8, 2)[:, 1])


@pytest.mark.parametrize("digits", [0, -1, 13])
def test_binary_rejects_an_invalid_number_of_digits(digits: int) -> None:
    with pytest.raises(ValueError, match=rf"digits={digits} must be from 1 to .* 12; change"):
        Binary(geometry(12), digits=digits)


@pytest.mark.parametrize("make", [Integers, ScaledIntegers, Binary])
def test_coordinates_are_rejected(make: type[Encoding]) -> None:
    with pytest.raises(ValueError, match="one position per token"):
        make(geometry()).embed(torch.zeros(1, 4, 12), torch.zeros(1, 4, 2))


@pytest.mark.parametrize(
    ("make", "norm", "same"),
    [
        (Integers, "layer_norm", True),
        (ScaledIntegers, "layer_norm", True),
        (Binary, "layer_norm", False),
        (Integers, "rms_norm", False),
        (ScaledIntegers, "rms_norm", False),
    ],
)
def test_a_layer_norm_cancels_what_all_channels_have_in_common(
    make: type[Encoding], norm: Literal["layer_norm", "rms_norm"], same: bool
) -> None:
    def logits(encoding: Encoding) -> Tensor:
        torch.manual_seed(0)
        model = Transformer(
            9, encoding, reference.attend, width=12, layers=2, heads=2, feed_forward=8, norm=norm
        )
        return model.double()(torch.arange(9)[None])

    nope = logits(Encoding(geometry()))
    assert torch.allclose(logits(make(geometry())), nope, rtol=0, atol=1e-9) == same
