"""BAM's prior, compared with its formula."""

import math

import pytest
import torch

from posenc.encodings.alibi import Alibi, authors_slopes
from posenc.encodings.bam import Bam
from posenc.encodings.base import Geometry

HEADS = 6
GEOMETRY = Geometry(width=12, heads=HEADS, layers=2, train_length=7)


def bias_of(encoding: Bam | Alibi, distance: torch.Tensor) -> torch.Tensor:
    head = torch.arange(HEADS)[:, None, None]
    bias = encoding.bias(head, distance, torch.zeros_like(distance))
    assert bias is not None and bias.dtype == distance.dtype
    return bias


def test_the_bias_is_a_power_of_the_distance() -> None:
    encoding = Bam(GEOMETRY).double()
    generator = torch.Generator().manual_seed(8)
    encoding.log_scales.data = torch.randn(HEADS, generator=generator, dtype=torch.float64)
    encoding.exponents.data = torch.rand(HEADS, generator=generator, dtype=torch.float64) * 3 - 1
    bias = bias_of(encoding, torch.arange(53, dtype=torch.float64)[None])
    for h in range(HEADS):
        s, a = encoding.log_scales[h].item(), encoding.exponents[h].item()
        expected = [-math.exp(s) * (n + 1e-5) ** a for n in range(53)]
        assert bias[h, 0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_bam_starts_as_alibi_with_a_power_of_the_distance(exponent: float) -> None:
    encoding = Bam(GEOMETRY, initial_exponent=exponent)
    distance = torch.arange(200.0)[None]
    slopes = torch.tensor(authors_slopes(HEADS))[:, None, None]
    expected = -slopes * distance**exponent
    torch.testing.assert_close(bias_of(encoding, distance), expected, rtol=1e-4, atol=1e-4)
    if exponent == 1:
        alibi = bias_of(Alibi(GEOMETRY), distance)
        torch.testing.assert_close(bias_of(encoding, distance), alibi, rtol=1e-5, atol=1e-5)


def test_the_bias_matches_golden_values() -> None:
    """With 6 heads, the slope of the first head is 1/4, as in ALiBi."""
    encoding = Bam(GEOMETRY, initial_exponent=0.5).double()
    bias = bias_of(encoding, torch.tensor([[0.0, 1.0, 100.0]], dtype=torch.float64))
    expected = [-0.25 * math.sqrt(1e-5), -0.25 * math.sqrt(1.00001), -2.500000125]
    assert bias[0, 0].tolist() == pytest.approx(expected, rel=1e-7)


def test_gradients_are_finite_at_every_distance() -> None:
    """Negative distances are those of keys after the query."""
    encoding = Bam(GEOMETRY)
    bias_of(encoding, torch.arange(-20.0, 20.0)[None]).sum().backward()
    for parameter in encoding.parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all()
        assert parameter.grad.abs().min() > 0
