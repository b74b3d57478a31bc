"""FoPE, compared with sums of cosines and sines, and the initial values of its matrices."""

import math

import pytest
import torch

from posenc.encodings.base import Geometry
from posenc.encodings.fope import Fope

LAYER, LENGTH, HEADS = 1, 19, 3


def geometry(width: int, train_length: int, heads: int = HEADS) -> Geometry:
    return Geometry(width=heads * width, heads=heads, layers=2, train_length=train_length)


@pytest.mark.parametrize(
    ("width", "train_length", "base"),
    [(8, 100, 1e4), (14, 7, 100.0), (12, 1000, 5.0), (4, 50, 3e3)],
)
@pytest.mark.parametrize("trainable", [False, True])
def test_channels_are_multiplied_by_mixtures_of_cosines_and_sines(
    width: int, train_length: int, base: float, trainable: bool
) -> None:
    torch.manual_seed(2)
    encoding = Fope(
        geometry(width, train_length), base=base, gain=0.7, trainable=trainable
    ).double()
    frequencies = [base ** (-2 * p / width) for p in range(width // 2)]
    kept = [f for f in frequencies if f * train_length >= 2 * math.pi]
    outputs = min(len(kept), width // 4)
    assert encoding.mixing.requires_grad == trainable
    mixing = encoding.mixing[LAYER].tolist()
    q, k = torch.randn(2, 2, HEADS, LENGTH, width, dtype=torch.float64).unbind(0)
    pos = torch.arange(LENGTH) * 11 + 3
    with torch.no_grad():
        rotated = encoding.at_layer(LAYER).rotate(torch.zeros(2, LENGTH, 1), q, k, pos)
    for h, t, c in [(h, t, c) for h in range(HEADS) for t in (0, 7, 18) for c in range(width // 2)]:
        cos, sin = 1.0, 1.0
        if c < outputs:
            m = pos[t].item()
            cos = math.fsum(mixing[0][h][p][c] * math.cos(m * f) for p, f in enumerate(kept))
            sin = math.fsum(mixing[1][h][p][c] * math.sin(m * f) for p, f in enumerate(kept))
        for before, after in zip((q, k), rotated, strict=True):
            a, b = before[1, h, t, c].item(), before[1, h, t, c + width // 2].item()
            actual = after[1, h, t, c].item(), after[1, h, t, c + width // 2].item()
            assert actual == pytest.approx((a * cos - b * sin, b * cos + a * sin), abs=1e-12)


@pytest.mark.parametrize(("train_length", "kept"), [(128, 11), (512, 16), (1024, 18)])
def test_frequencies_that_complete_a_rotation_are_kept(train_length: int, kept: int) -> None:
    """FoPE keeps as many frequencies as HoPE for a head dimension of 64."""
    assert len(Fope(geometry(64, train_length, heads=1)).frequencies) == kept


def test_matrices_start_at_ones_in_every_other_row_plus_xavier_normal_noise() -> None:
    heads, outputs, kept = 8, 32, 46  # for a head dimension of 128 and a training length of 4096
    without_noise = Fope(geometry(128, 4096, heads), gain=0).mixing[0, 0, 0]
    ones = [(2 * column, column) for column in range(kept // 2)]
    assert without_noise.nonzero().tolist() == [list(index) for index in ones]
    torch.manual_seed(4)
    mixing = Fope(geometry(128, 4096, heads), gain=0.6).mixing
    noise = (mixing - without_noise)[:, :, :, :kept, :outputs]
    # As nn.init.xavier_normal_ computes it for a tensor of 3 dimensions.
    std = 0.6 * math.sqrt(2 / (outputs * (kept + heads)))
    assert noise.std().item() == pytest.approx(std, rel=0.02)
    assert not mixing[:, :, :, kept:].any()
    assert not torch.equal(mixing[0, 0], mixing[0, 1])  # cosine and sine
    assert not torch.equal(mixing[0], mixing[1])  # layers


def test_without_noise_the_mixed_pairs_equal_those_of_rope() -> None:
    encoding = Fope(geometry(8, 10_000), gain=0).double()
    cos, sin = encoding.tables(torch.arange(LENGTH))
    frequencies = torch.tensor([1.0, 0.01], dtype=torch.float64)  # every second one of 1e4^(-c/4)
    angles = torch.arange(LENGTH).double()[:, None] * frequencies
    torch.testing.assert_close(cos[0, :, :2], angles.cos())
    torch.testing.assert_close(sin[0, :, :2], angles.sin())
    assert (cos[..., 2:] == 1).all() and (sin[..., 2:] == 1).all()
    assert not encoding.limitations


def test_invalid_parameters_are_rejected() -> None:
    with pytest.raises(ValueError, match="head dimension 2"):
        Fope(geometry(2, 100))
    with pytest.raises(ValueError, match="gain=-1"):
        Fope(geometry(8, 100), gain=-1)
    with pytest.raises(ValueError, match="train_length=6"):
        Fope(geometry(8, 6))
    with pytest.raises(ValueError, match="coordinates"):
        Fope(geometry(8, 100)).tables(torch.zeros(1, 4, 2))
