"""The lower bound on RoPE's base, compared with published values and checked by its criterion."""

import math

import pytest

from posenc.encodings.spectra.base_bound import smallest_base

PUBLISHED_BASES = [
    (128, 1024, 4.3e3),  # Men et al. 2024, Table 2
    (128, 2048, 1.2e4),  # the finer search of kexue.fm/archives/10122; the paper has 1.6e4
    (128, 4096, 2.7e4),  # the same in both
    (32, 256, 2.2e3),
    (32, 512, 1.25e4),
    (64, 512, 3.4e3),
    (64, 1024, 7.8e3),
]


@pytest.mark.parametrize(("head_dim", "length", "published"), PUBLISHED_BASES)
def test_smallest_bases_match_published_values(
    head_dim: int, length: int, published: float
) -> None:
    assert smallest_base(head_dim, length) == pytest.approx(published, rel=0.04)


def test_the_smallest_base_meets_the_criterion_and_a_smaller_one_does_not() -> None:
    def smallest_margin(base: float) -> float:
        return min(sum(math.cos(m * base ** (-i / 8)) for i in range(8)) for m in range(101))

    base = smallest_base(16, 100)
    assert smallest_margin(base) >= 0 > smallest_margin(base / 1.0005)


@pytest.mark.parametrize(("head_dim", "length"), [(7, 10), (0, 10), (8, 0)])
def test_invalid_arguments_are_rejected(head_dim: int, length: int) -> None:
    with pytest.raises(ValueError, match=f"head_dim={head_dim} .* length={length}"):
        smallest_base(head_dim, length)
