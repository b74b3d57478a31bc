"""Partial key offset, compared with its definition token by token and channel by channel."""

import cmath
from functools import partial

import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.partial_key_offset import PartialKeyOffset
from posenc.encodings.rope import Layout
from posenc.encodings.spectra import geometric, half_truncated, p_rope

HEADS, LENGTH = 2, 19


def geometry(head_dim: int) -> Geometry:
    return Geometry(width=HEADS * head_dim, heads=HEADS, layers=1, train_length=7)


def rotate_pair(pair: tuple[float, float], angle: float) -> tuple[float, float]:
    rotated = complex(*pair) * cmath.exp(1j * angle)
    return rotated.real, rotated.imag


@pytest.mark.parametrize(("layout", "width"), [("half", 16), ("interleaved", 16), ("half", 4)])
@pytest.mark.parametrize("base", [1024.0, 77.0])
def test_half_of_the_channels_rotate_and_the_others_of_keys_are_those_of_the_previous_token(
    layout: Layout, width: int, base: float
) -> None:
    spectrum = partial(half_truncated, base=base)
    encoding = PartialKeyOffset(geometry(width), spectrum=spectrum, layout=layout)
    q, k = torch.randn(2, 1, HEADS, LENGTH, width, dtype=torch.float64).unbind(0)
    x, pos = torch.zeros(1, LENGTH, 1), torch.arange(LENGTH) + 5
    for name, before, after in zip("qk", (q, k), encoding.rotate(x, q, k, pos), strict=True):
        for i in range(width // 2):
            a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
            num_rotating = width // 4
            for t in range(LENGTH):
                source = t
                angle = 0.0
                if i < num_rotating:
                    angle = (t + 5) * base ** -(i / (num_rotating - 1) if num_rotating > 1 else 0.0)
                elif name == "k":
                    source = max(t - 1, 0)
                pair = before[0, 1, source, a].item(), before[0, 1, source, b].item()
                actual = after[0, 1, t, a].item(), after[0, 1, t, b].item()
                assert actual == pytest.approx(rotate_pair(pair, angle), abs=1e-12)


def test_the_stationary_channels_are_the_published_ones() -> None:
    """With heads of 128 channels, 32 to 63 and 96 to 127 are stationary."""
    encoding = PartialKeyOffset(geometry(128), spectrum=half_truncated)
    stationary = encoding.stationary_channels(1, 9, torch.device("cpu"))
    expected = [32 <= c < 64 or c >= 96 for c in range(128)]
    assert stationary.tolist() == expected
    frequencies, _ = encoding.sinusoids.frequencies(1, 9, torch.device("cpu"))
    assert frequencies[0, 0] == 1 and frequencies[0, 31].item() == pytest.approx(1 / 1024)


def test_channels_with_frequency_0_and_unrotated_channels_are_stationary() -> None:
    encoding = PartialKeyOffset(
        geometry(16), spectrum=partial(p_rope, fraction=0.5), rotary_fraction=0.75
    )
    stationary = encoding.stationary_channels(1, 9, torch.device("cpu"))
    assert stationary.nonzero().flatten().tolist() == [3, 4, 5, 9, 10, 11, 12, 13, 14, 15]


def test_one_layer_is_enough_for_induction() -> None:
    """The score of a query is highest at the token after an earlier copy of the query's token."""
    encoding = PartialKeyOffset(geometry(16), spectrum=half_truncated)
    tokens = torch.tensor([3, 1, 4, 7, 5, 2, 6, 0, 4])
    stationary = encoding.stationary_channels(1, 9, torch.device("cpu"))
    embeddings = torch.zeros(8, 16)
    embeddings[:, stationary] = torch.eye(8)
    q = embeddings[tokens][None, None]
    q, k = encoding.rotate(torch.zeros(1, 9, 1), q, q, torch.arange(9))
    assert (q @ k.mT)[0, 0, -1].argmax() == 3


def test_a_spectrum_without_stationary_channels_is_rejected() -> None:
    with pytest.raises(ValueError, match="half_truncated"):
        PartialKeyOffset(geometry(16), spectrum=geometric)
    PartialKeyOffset(geometry(16), spectrum=geometric, rotary_fraction=0.5)
